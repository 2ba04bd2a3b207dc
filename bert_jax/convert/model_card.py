"""Write the model card (README.md) of an exported model."""

import contextlib
import json

from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, read_config
from bert_jax.config.embedding import Embedding
from bert_jax.pretrained import Model
from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import read_manifest
from bert_jax.training.metrics_file import METRICS

PIPELINES = {
    "pretraining": "fill-mask",
    "masked_lm": "fill-mask",
    "encoder": "feature-extraction",
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}
_PAIR_OBJECTIVES = {
    "nsp": "whether the second segment follows or is random",
    "sop": "whether two segments are in order or swapped",
    "none": "nothing about pairs: the next-sentence head has its random initial values",
}


def model_card(model: Model, architecture: str, max_tokens: int) -> str:
    """Return the card, with what the checkpoint records about its training.

    Args:
        max_tokens: longer texts are cut to it.
    """
    c, directory = model.config, model.directory.absolute()
    run = directory.parent.parent if directory.parent.name == CHECKPOINTS else None
    facts = {
        "Architecture": f"{architecture}, {_shape(model)}",
        "Length": f"{max_tokens} tokens, [CLS] and [SEP] included",
        **_training(model, run),
    }
    if c.head == "pretraining":
        facts["Pair objective"] = _PAIR_OBJECTIVES[model.pairs]
    if c.head == "encoder" and "pooler" not in model.params:
        facts["Pooler"] = (
            "none; transformers initializes one at random when it loads the model"
        )
    if model.embedding is not None:
        facts["Vectors of texts"] = _describe_embedding(model.embedding)
    if c.labels:
        facts["Classes"] = " ".join(", ".join(c.labels).replace("|", r"\|").split())
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"""\
---
library_name: transformers
license: other  # replace it by the licence of this model
pipeline_tag: {PIPELINES[c.head]}
tags:
- bert
- bert_jax
---

# {(run or directory).name}

A model of bert_jax, exported to the files of transformers:
`{architecture}.from_pretrained(DIRECTORY)`.
`conversion.json` lists the source of each tensor, and the sha256 of all files.

| | |
|---|---|
{rows}
"""


def _shape(model: Model) -> str:
    c, casing = model.config, "cased" if model.tokenizer.cased else "uncased"
    return (
        f"{c.num_hidden_layers} layers of {c.hidden_size}, {c.num_attention_heads} "
        f"heads, vocabulary {c.vocab_size}, {casing}"
    )


def _describe_embedding(embedding: Embedding) -> str:
    if embedding.unsupported:
        return f"{embedding.unsupported}, which bert_jax neither computes nor exports"
    return f"{embedding.pooling} pooling{', of length 1' * embedding.normalize}"


def _training(model: Model, run: epath.Path | None) -> JsonObject:
    """Return facts about the run that made the checkpoint."""
    if model.imported:
        return {"Training": "not in bert_jax; it was imported"}
    config, manifest = read_config(model.directory), read_manifest(model.directory)
    facts = {"Steps": f"{manifest['step']:,}"}
    if fingerprint := config["data"].get("fingerprint"):
        facts["Data"] = f"dataset with fingerprint {fingerprint}"
    if scores := _validation(run, manifest["step"]):
        facts["Validation"] = scores
    return facts


def _validation(run: epath.Path | None, step: int) -> str:
    """Return the run's last validation scores up to `step`."""
    if run is None or not (run / METRICS).exists():
        return ""
    last: JsonObject = {}
    for line in (run / METRICS).read_text().splitlines():
        # The last line may be incomplete.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            values = json.loads(line)
            if values["split"] == "validation" and values["step"] <= step:
                last = values
    scores = [
        f"{name} {value:.4f}" for name, value in last.items() if type(value) is float
    ]
    return f"{', '.join(scores)} (step {last['step']:,})" if scores else ""
