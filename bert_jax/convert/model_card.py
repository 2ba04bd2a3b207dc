"""The README.md of an exported model: what it is, and where it comes from."""

import json
from typing import Any

from etils import epath

from bert_jax.checkpoints.steps import CHECKPOINTS, read_config
from bert_jax.formats.embedding import Embedding
from bert_jax.pretrained import Model
from bert_jax.storage.manifest import read_manifest
from bert_jax.training.report import METRICS

PIPELINES = {
    "pretraining": "fill-mask",
    "masked_lm": "fill-mask",
    "encoder": "feature-extraction",
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}
_PAIRS = {
    "nsp": "whether the second segment follows or is random",
    "sop": "whether two segments are in order or swapped",
    "none": "nothing of pairs: the next-sentence head is as it was drawn",
}


def model_card(model: Model, architecture: str) -> str:
    """The card, with what the checkpoint knows of its own making."""
    c = model.config
    facts = {
        "Architecture": f"{architecture}, {c.num_hidden_layers} layers of "
        f"{c.hidden_size}, {c.num_attention_heads} heads, vocabulary {c.vocab_size}, "
        f"{'cased' if model.tokenizer.cased else 'uncased'}",
        **_training(model),
    }
    if c.head == "pretraining":
        facts["Learned of pairs"] = _PAIRS[model.pairs]
    if c.head == "encoder" and "pooler" not in model.params:
        facts["Pooler"] = "none; transformers draws one anew when it loads the model"
    if model.embedding is not None:
        facts["Vectors of texts"] = _vectors(model.embedding)
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

# {_title(model.directory.absolute())}

A model of bert_jax, exported to the files of transformers:
`{architecture}.from_pretrained(DIRECTORY)`.
`conversion.json` says which tensor became which, and the sha256 of both sides' files.

| | |
|---|---|
{rows}
"""


def _vectors(embedding: Embedding) -> str:
    if embedding.unsupported:
        return f"{embedding.unsupported}, which bert_jax neither computes nor exports"
    return f"{embedding.pooling} pooling{', of length 1' * embedding.normalize}"


def _title(directory: epath.Path) -> str:
    """The name of the model: of its run, rather than of one step of it."""
    of_run = directory.parent.name == CHECKPOINTS
    return directory.parent.parent.name if of_run else directory.name


def _training(model: Model) -> dict[str, Any]:
    """What the files of a checkpoint say of the run that made it."""
    if model.imported:
        return {"Training": "not in bert_jax; it was imported"}
    config, manifest = read_config(model.directory), read_manifest(model.directory)
    facts = {"Steps": f"{manifest['step']:,}"}
    fingerprint = config["data"].get("fingerprint")
    if fingerprint:
        facts["Data"] = f"dataset with fingerprint {fingerprint}"
    scores = _validation(model, manifest["step"])
    if scores:
        facts["Validation"] = scores
    return facts


def _validation(model: Model, step: int) -> str:
    """The run's last scores over the validation rows, as of `step`."""
    place = model.directory.absolute().parent
    path = place.parent / METRICS
    if place.name != CHECKPOINTS or not path.exists():
        return ""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue  # a run that is stopped, or is writing, may leave a torn line
    last: dict[str, Any] = next(
        (
            line
            for line in reversed(lines)
            if line.get("split") == "validation" and line.get("step", step + 1) <= step
        ),
        {},
    )
    scores = [
        f"{name} {value:.4f}" for name, value in last.items() if type(value) is float
    ]
    return f"{', '.join(scores)} (step {last['step']:,})" if scores else ""
