"""Write the model card (README.md) of an exported model."""

import html
import json
import math

from etils import epath

from bert_jax.apps.convert.origin import Origin
from bert_jax.checkpoints.steps import CHECKPOINTS
from bert_jax.formats.imported import RECEIPT
from bert_jax.formats.model_files import read_object_or_empty
from bert_jax.pretrained import Model
from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import MANIFEST, read_manifest
from bert_jax.tasks.predictions import score_format
from bert_jax.training.metrics_file import METRICS, VALIDATION, read_metrics

_UNKNOWN = "unknown  # name it: --license of the export"
PIPELINES = {
    "pretraining": "fill-mask",
    "masked_lm": "fill-mask",
    "encoder": "feature-extraction",
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "question_answering": "question-answering",
    "multiple_choice": "multiple-choice",
}
_OF_A_PIPELINE = """\
from transformers import pipeline

model = pipeline("{kind}", model=".")
print(model({text}))"""
_OF_A_CLASS = """\
from transformers import AutoModel{suffix}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModel{suffix}.from_pretrained(".")
{code}"""
_CODE = {
    "encoder": """\
outputs = model(**tokenizer("It was dark.", return_tensors="pt"))
print(outputs.last_hidden_state.shape)""",
    "question_answering": """\
texts = "How was it?", "It was dark inside."
inputs = tokenizer(*texts, truncation=True, return_tensors="pt")
outputs = model(**inputs)
start, end = outputs.start_logits.argmax(), outputs.end_logits.argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))""",
    "multiple_choice": """\
starts, choices = ["The lamp fell."] * 2, ["It was dark.", "It was Monday."]
how = {"padding": True, "truncation": True, "return_tensors": "pt"}
inputs = tokenizer(starts, choices, **how)
outputs = model(**{name: values[None] for name, values in inputs.items()})
print(choices[outputs.logits.argmax()])""",
}
_SENTENCES = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")
vectors = model.encode(["It was dark.", "There was no light."])
print(model.similarity(vectors, vectors))"""
_RANKING = """\
from sentence_transformers import CrossEncoder

model = CrossEncoder(".")
print(model.predict([("Was it dark?", "It was dark."), ("Who?", "It rained.")]))"""
_MADE = {
    "mean_of": "none of its own: it is the mean of checkpoints of a run of bert_jax",
    "layers": "none of its own: it has some layers of another model",
    "words": "none of its own: it is another model, with more words or positions",
}
"""By the key of a conversion's receipt that no import has."""
_PAIR_OBJECTIVES = {
    "nsp": "whether the second segment follows or is random",
    "sop": "whether two segments are in order or swapped",
    "none": "nothing about pairs: the next-sentence head has its random initial values",
}


def model_card(model: Model, architecture: str, max_tokens: int, origin: Origin) -> str:
    """Return the card, with what the checkpoint records about its training."""
    directory, c = model.directory.absolute(), model.config
    casing = "cased" if model.tokenizer.cased else "uncased"
    run = directory.parent.parent if directory.parent.name == CHECKPOINTS else None
    facts = {
        "Architecture": (
            f"{architecture}, {c.num_hidden_layers} layers of {c.hidden_size}, "
            f"{c.num_attention_heads} heads, vocabulary {c.vocab_size}, {casing}"
        ),
        "Length": f"{max_tokens} tokens, [CLS] and [SEP] included",
        **_training(model, run),
        **_parts(model),
    }
    if origin.base_model:
        facts["Base model"] = origin.base_model
    rows = "\n".join(f"| {name} | {_text(v)} |" for name, v in facts.items())
    pipeline, library, example = usage(model)
    return f"""\
---
{_metadata(pipeline, library, origin)}
---

# {_text((run or directory).name)}

A model of bert_jax, exported to the files of transformers. In this directory:

```python
{example}
```

bert_jax loads it by `bert_jax.load(".")`. `hf upload OWNER/NAME .` uploads it; then
`OWNER/NAME` takes the place of the dot.

| | |
|---|---|
{rows}

`conversion.json` lists the source of each tensor, and the sha256 of all files.
"""


def _text(value: object) -> str:
    """Return a value as Markdown that holds no HTML."""
    return html.escape(str(value), quote=False)


def _metadata(pipeline: str, library: str, origin: Origin) -> str:
    """Return the YAML at the head of the card, which the hub reads."""
    lines = [f"library_name: {library}", f"pipeline_tag: {pipeline}"]
    lines.append(f"license: {origin.license or _UNKNOWN}")
    if origin.languages:
        # Quoted, since "no" is false in YAML.
        lines += ["language:", *(f"- {json.dumps(code)}" for code in origin.languages)]
    if origin.base_model:
        lines.append(f"base_model: {origin.base_model}")
    return "\n".join([*lines, "tags:", "- bert_jax"])


def usage(model: Model) -> tuple[str, str, str]:
    """Return a model's pipeline at the hub, its library there, and an example."""
    head, config = model.config.head, model.run
    if model.embedding is not None and not model.embedding.unsupported:
        return "sentence-similarity", "sentence-transformers", _SENTENCES
    if config.get("task") == "sentence-pairs":
        return "text-ranking", "sentence-transformers", _RANKING
    kind = PIPELINES[head]
    if head in _CODE:
        suffix = "" if head == "encoder" else f"For{head.title().replace('_', '')}"
        code = _OF_A_CLASS.format(suffix=suffix, code=_CODE[head])
        return kind, "transformers", code
    text = '"It was dark inside."'
    if kind == "fill-mask":
        text = json.dumps(f"It was {model.tokenizer.mask_token} inside.")
    elif reads_pairs(model):
        text = '{"text": "It was dark.", "text_pair": "There was no light."}'
    return kind, "transformers", _OF_A_PIPELINE.format(kind=kind, text=text)


def reads_pairs(model: Model) -> bool:
    """Return whether a model was fine-tuned on pairs of texts, as far as is known."""
    data = model.run.get("data", {})
    numbers = data.get("num_texts"), len(data.get("text_columns") or ())
    return 2 in numbers or model.run.get("task") == "sentence-pairs"


def _parts(model: Model) -> JsonObject:
    """Return facts about what is above the encoder."""
    c, facts = model.config, {}
    if c.head == "pretraining":
        facts["Pair objective"] = _PAIR_OBJECTIVES[model.pairs]
    if c.head == "encoder" and "pooler" not in model.params:
        facts["Pooler"] = (
            "none; transformers initializes one at random when it loads the model"
        )
    if (embedding := model.embedding) is not None:
        about = f"{embedding.pooling} pooling{', of length 1' * embedding.normalize}"
        if lost := embedding.unsupported:
            about = f"{lost}, which bert_jax neither computes nor exports"
        facts["Vectors of texts"] = about
    if c.labels:
        facts["Classes"] = " ".join(", ".join(c.labels).replace("|", r"\|").split())
    return facts


def _training(model: Model, run: epath.Path | None) -> JsonObject:
    """Return facts about the run that made the checkpoint."""
    if model.imported:
        receipt = read_object_or_empty(model.directory / RECEIPT)
        made = [text for key, text in _MADE.items() if key in receipt]
        return {"Training": "".join(made) or "not in bert_jax; it was imported"}
    facts, step = {}, 0
    if (model.directory / MANIFEST).exists():  # a loaded model may have lost it
        step = read_manifest(model.directory)["step"]
    if step:
        facts["Steps"] = f"{step:,}"
    if fingerprint := model.run["data"].get("fingerprint"):
        facts["Data"] = f"dataset with fingerprint {fingerprint}"
    if scores := _validation(run, step):
        facts["Validation"] = scores
    return facts


def _validation(run: epath.Path | None, step: int) -> str:
    """Return the run's last validation scores up to `step`."""
    lines = read_metrics(run / METRICS)[0] if run is not None else []
    known = [line for line in lines if line.split == VALIDATION and line.step <= step]
    if not known:
        return ""
    last = known[-1].scalars
    named = [value for name, value in last.items() if name.startswith("f1_")]
    scores = [
        f"{name} {value:{score_format(name)}}"
        for name, value in last.items()
        if math.isfinite(value) and not (name == "f1" and value in named)
    ]
    return f"{', '.join(scores)} (step {known[-1].step:,})" if scores else ""
