"""Makes heads.npz: the files that transformers saves of each head, and its outputs."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from reference import HERE, Scales, draw_weights, save

SHAPE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
}
HEADS = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)
LABELS = {0: "sad", 1: "calm", 2: "glad"}
B, T = 4, 16
LENGTHS = np.array([T, 11, 7, 3])
SECOND_SEGMENT = np.array([7, 5, 4, 2])
SCALES = Scales(
    embedding=0.2, kernel=0.25, bias=0.3, layer_norm=0.3, layer_norm_mean=1.0
)


def main() -> None:
    torch.set_num_threads(1)
    inputs = make_inputs(np.random.default_rng(1))
    configs, tree = {}, {}
    for name in HEADS:
        model = build(name)
        config, tensors = saved_files(model)
        configs[f"heads/{name}/config"] = config
        tree[name] = {"safetensors": tensors, "outputs": run(model, inputs)}
    save(HERE / "heads.npz", configs, {"inputs": inputs, "heads": tree})


def make_inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random ids under the padding too: a mask that leaks would show."""
    positions = np.arange(T)
    attention_mask = positions < LENGTHS[:, None]
    segment_ids = (positions >= SECOND_SEGMENT[:, None]) & attention_mask
    return {
        "input_ids": rng.integers(0, SHAPE["vocab_size"], (B, T)).astype(np.int32),
        "segment_ids": segment_ids.astype(np.int32),
        "attention_mask": attention_mask.astype(np.int32),
    }


def build(name: str) -> transformers.PreTrainedModel:
    classified = name.endswith(("SequenceClassification", "TokenClassification"))
    labels = {"id2label": LABELS} if classified else {}
    config = transformers.BertConfig(
        **SHAPE, **labels, pad_token_id=None, attn_implementation="eager"
    )
    return draw_weights(getattr(transformers, name)(config), SCALES, HEADS.index(name))


def run(
    model: transformers.PreTrainedModel, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """All that the model computes."""
    ids, segments, mask = (torch.from_numpy(x).long() for x in inputs.values())
    if isinstance(model, transformers.BertForMultipleChoice):
        ids, segments, mask = (x.reshape(2, 2, T) for x in (ids, segments, mask))
    with torch.no_grad():
        arguments = {"token_type_ids": segments, "attention_mask": mask}
        found = model(ids, **arguments, output_hidden_states=True)
    outputs = {"hidden_states": torch.stack(found.hidden_states).numpy()}
    for key, values in found.items():
        if isinstance(values, torch.Tensor) and key != "last_hidden_state":
            outputs[key] = values.numpy()
    return outputs


def saved_files(
    model: transformers.PreTrainedModel,
) -> tuple[dict[str, Any], np.ndarray]:
    """config.json, and the bytes of model.safetensors."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = json.loads((Path(folder) / "config.json").read_text())
        tensors = (Path(folder) / "model.safetensors").read_bytes()
    return config, np.frombuffer(tensors, np.uint8)


if __name__ == "__main__":
    main()
