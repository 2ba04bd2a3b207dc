"""Makes forward.npz: weights, inputs, and what transformers computes from them."""

import numpy as np
import torch
from reference import HERE, SHAPE, Scales, build_model, export_weights, save

VOCAB_SIZE, B, T = 97, 4, 24
LENGTHS = np.array([T, 17, 9, 3])
SECOND_SEGMENT = np.array([11, 8, 4, 2])
SCALES = Scales(
    embedding=0.2, kernel=0.25, bias=0.3, layer_norm=0.3, layer_norm_mean=1.0
)


def main() -> None:
    torch.set_num_threads(1)
    config = SHAPE | {"vocab_size": VOCAB_SIZE, "hidden_act": "gelu"}
    inputs = make_inputs(np.random.default_rng(1))
    outputs = run(config, inputs)
    tanh_outputs = run(config | {"hidden_act": "gelu_new"}, inputs)
    last, tanh_last = outputs["hidden_states"][-1], tanh_outputs["hidden_states"][-1]
    print(f"last hidden state: standard deviation {last.std():.3f}")
    print(f"gelu against gelu_new: max |Δ| {np.abs(last - tanh_last).max():.1e}")
    tree = {
        "weights": export_weights(build_model(config, SCALES, seed=0)),
        "inputs": inputs,
        "outputs": outputs,
        "gelu_new": {
            "last_hidden_state": tanh_last,
            "masked_lm_logits": tanh_outputs["masked_lm_logits"],
            "next_sentence_logits": tanh_outputs["next_sentence_logits"],
        },
    }
    save(HERE / "forward.npz", {"config": config}, tree)


def make_inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random ids under the padding too: a mask that leaks would show."""
    positions = np.arange(T)
    attention_mask = positions < LENGTHS[:, None]
    segment_ids = (positions >= SECOND_SEGMENT[:, None]) & attention_mask
    return {
        "input_ids": rng.integers(0, VOCAB_SIZE, (B, T)).astype(np.int32),
        "segment_ids": segment_ids.astype(np.int32),
        "attention_mask": attention_mask.astype(np.int32),
    }


def run(config: dict[str, object], inputs: dict[str, np.ndarray]) -> dict:
    model = build_model(config, SCALES, seed=0)
    ids, segments, mask = (torch.from_numpy(x).long() for x in inputs.values())
    arguments = {"token_type_ids": segments, "attention_mask": mask}
    with torch.no_grad():
        outputs = model(ids, **arguments, output_hidden_states=True)
        pooled = model.bert(ids, **arguments).pooler_output
        embeddings = model.bert.embeddings(ids, token_type_ids=segments)
    assert torch.equal(outputs.hidden_states[0], embeddings)
    return {
        "hidden_states": torch.stack(outputs.hidden_states).numpy(),
        "pooled_output": pooled.numpy(),
        "masked_lm_logits": outputs.prediction_logits.numpy(),
        "next_sentence_logits": outputs.seq_relationship_logits.numpy(),
    }


if __name__ == "__main__":
    main()
