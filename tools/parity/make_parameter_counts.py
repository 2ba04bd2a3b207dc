"""Makes parameter_counts.json: the sizes that transformers gives our presets.

`encoder` counts embeddings and layers with the pooler, `pretraining` the two heads too;
the tied table counts once. Nothing is allocated.
"""

import json

import torch
import transformers
from reference import HERE

PRESETS = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
} | {
    f"L{layers}_H{hidden}": (layers, hidden)
    for layers in range(2, 13, 2)
    for hidden in (128, 256, 512, 768)
}


def main() -> None:
    counts = {name: count(*shape) for name, shape in PRESETS.items()}
    (HERE / "parameter_counts.json").write_text(json.dumps(counts, indent=1) + "\n")


def count(layers: int, hidden: int) -> dict[str, int]:
    config = transformers.BertConfig(
        vocab_size=30522,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    with torch.device("meta"):
        model = transformers.BertForPreTraining(config)
    model.tie_weights()
    return {
        "encoder": sum(p.numel() for p in model.bert.parameters()),
        "pretraining": sum(p.numel() for p in model.parameters()),
    }


if __name__ == "__main__":
    main()
