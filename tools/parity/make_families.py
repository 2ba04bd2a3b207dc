"""Makes families.npz: files and outputs of the families whose tensors are BERT's."""

from typing import Any

import numpy as np
import torch
import transformers
from make_heads import saved_files
from reference import HERE, save

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
DISTILBERT_SIZES = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
ROBERTA = {**SIZES, "max_position_embeddings": 18, "type_vocab_size": 1}
FAMILIES = {
    "Roberta": {**ROBERTA, "layer_norm_eps": 1e-5},
    "XLMRoberta": {**ROBERTA, "layer_norm_eps": 1e-5},
    "Camembert": {**ROBERTA, "layer_norm_eps": 1e-5},
    "DistilBert": {**DISTILBERT_SIZES, "max_position_embeddings": 16},
    "Electra": {**SIZES, "embedding_size": 16, "max_position_embeddings": 16},
}
"""Positions of RoBERTa's kind are counted after that of padding, 1."""
CLASSES = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
LABELS = {0: "sad", 1: "calm", 2: "glad"}
VOCABULARY = 40
LENGTHS = np.array([12, 9, 5, 3])
SECOND_SEGMENT = np.array([5, 4, 2, 2])


def main() -> None:
    torch.set_num_threads(1)
    configs, tree = {}, {}
    for family in FAMILIES:
        for number, end in enumerate(CLASSES):
            if not hasattr(transformers, family + end):
                continue
            model = build(family, end, seed=number)
            config, tensors = saved_files(model)
            configs[f"models/{family}{end}/config"] = config
            outputs = run(model, make_inputs(model.config.pad_token_id))
            tree[family + end] = {"safetensors": tensors, "outputs": outputs}
    inputs = {str(padding): make_inputs(padding) for padding in (0, 1)}
    save(HERE / "families.npz", configs, {"inputs": inputs, "models": tree})


def make_inputs(padding: int) -> dict[str, np.ndarray]:
    """Ids of no special token; RoBERTa's classes tell padding by its id.

    Only ELECTRA, of these families, has two segments.
    """
    positions = np.arange(max(LENGTHS))
    real = positions < LENGTHS[:, None]
    second = real & (positions >= SECOND_SEGMENT[:, None])
    ids = np.random.default_rng(1).integers(5, VOCABULARY - 1, real.shape)
    return {
        "input_ids": np.where(real, ids, padding).astype(np.int32),
        "attention_mask": real.astype(np.int32),
        "token_type_ids": second.astype(np.int32),
    }


def build(family: str, end: str, seed: int) -> transformers.PreTrainedModel:
    """A model of random weights, each a multiple of 1/32, which compress well."""
    classified = end.endswith(("SequenceClassification", "TokenClassification"))
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        attn_implementation="eager",
        **FAMILIES[family],
        **({"id2label": LABELS} if classified else {}),
    )
    model = getattr(transformers, family + end)(config)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = 0.3 * rng.standard_normal(tuple(parameter.shape))
            if "norm" in name.lower() and name.endswith("weight"):
                values += 1
            parameter.copy_(torch.from_numpy(np.round(32 * values) / 32))
    return model.eval()


def run(
    model: transformers.PreTrainedModel, inputs: dict[str, np.ndarray]
) -> dict[str, Any]:
    """All that the model computes."""
    if getattr(model.config, "type_vocab_size", 1) == 1:
        inputs = {n: x for n, x in inputs.items() if n != "token_type_ids"}
    arguments = {name: torch.from_numpy(x).long() for name, x in inputs.items()}
    if type(model).__name__.endswith("MultipleChoice"):
        arguments = {name: x.reshape(2, 2, -1) for name, x in arguments.items()}
    with torch.no_grad():
        found = model(**arguments, output_hidden_states=True)
    outputs = {"hidden_states": torch.stack(found.hidden_states).numpy()}
    for key, values in found.items():
        if isinstance(values, torch.Tensor) and key != "last_hidden_state":
            outputs[key] = values.numpy()
    return outputs


if __name__ == "__main__":
    main()
