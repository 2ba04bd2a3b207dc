"""Write the README of an ONNX export: its outputs, and a program that runs it."""

from bert_jax.apps.convert.export import input_names, max_tokens
from bert_jax.apps.convert.model_card import reads_pairs
from bert_jax.apps.convert.onnx_graph import MODEL, Dims
from bert_jax.formats.families import FAMILIES
from bert_jax.formats.tokenizer_json import TOKENIZER_JSON
from bert_jax.pretrained import Model

PROGRAM = """\
import {libraries}
tokenizer = tokenizers.Tokenizer.from_file("{tokenizer}")
tokenizer.enable_truncation({length})
tokenizer.enable_padding(pad_id={pad_id}, pad_token="{pad_token}")
session = onnxruntime.InferenceSession("{model}")
texts = {texts}
rows = tokenizer.encode_batch(texts)
inputs = {{
    name: numpy.array([getattr(row, values) for row in rows], numpy.int64){choices}
    for name, values in {inputs}
}}
{results} = session.run(None, inputs)
{use}
"""
_VALUES = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
"""The attribute of an encoding that is the value of an input."""
_TWO = '["The first text.", "Another one."]'
_PAIRS = '[("Was it dark?", "It was dark."), ("Who was there?", "It rained.")]'
_LABELS = (
    'config = json.loads(pathlib.Path("config.json").read_text())\n'
    'labels = config["id2label"]\n'
)


def readme(model: Model, outputs: dict[str, Dims]) -> str:
    """Return the page of a model's graph with these outputs, which cuts long texts."""
    config, tokenizer = model.config, model.tokenizer
    texts, use = _example(model, outputs)
    libraries = ["json", "pathlib"] if "json." in use else []
    pairs = [f'("{name}", "{_VALUES[name]}")' for name in input_names(config)]
    program = PROGRAM.format(
        libraries=", ".join([*libraries, "numpy", "onnxruntime", "tokenizers"]),
        tokenizer=TOKENIZER_JSON,
        model=MODEL,
        length=max_tokens(model),
        pad_id=tokenizer.pad_id,
        pad_token=tokenizer.special_names["[PAD]"],
        texts=texts,
        inputs=f"[{', '.join(pairs)}]",
        choices="[None]" if config.head == "multiple_choice" else "",
        results=", ".join(outputs) if len(outputs) > 1 else f"({next(iter(outputs))},)",
        use=use,
    )
    rows = "\n".join(
        f"| `{name}` | {', '.join(map(str, dims))} |" for name, dims in outputs.items()
    )
    remarks = ""
    if config.attention == "causal":
        remarks = "Scores at a position are those of the token after it.\n"
    return f"""\
# {FAMILIES[config.family].class_of(config.head) or config.head} as ONNX

A model of bert_jax. Inputs are int64, outputs float32; batch size and length are free,
up to {config.max_position_embeddings} tokens.
{remarks}
| output | shape |
|---|---|
{rows}

Run it in this directory, with onnxruntime, tokenizers and NumPy:

```python
{program}```
"""


def _example(model: Model, outputs: dict[str, Dims]) -> tuple[str, str]:
    """Return texts for the head, and what to do with its outputs, as Python."""
    config, mask = model.config, model.tokenizer.mask_token
    head = config.head
    if head == "multiple_choice":
        pairs = '[("The context.", "A choice."), ("The context.", "Another choice.")]'
        return pairs, "print(logits.argmax(1))  # the number of the best choice"
    if head == "question_answering":
        use = (
            "start, end = start_logits[0].argmax(), end_logits[0].argmax()\n"
            "first, last = rows[0].offsets[start][0], rows[0].offsets[end][1]\n"
            "print(texts[0][1][first:last])"
        )
        return '[("Who sat on the mat?", "The cat sat on the mat.")]', use
    if head == "sequence_classification":
        texts = _PAIRS if reads_pairs(model) else _TWO
        if config.problem_type == "regression":
            return texts, "print(logits[:, 0])  # a value per text"
        names = "[labels[str(i)] for i in logits.argmax(1)]"
        if config.problem_type == "multi_label_classification":
            names = "[[labels[str(i)] for i in row.nonzero()[0]] for row in logits > 0]"
        return texts, f"{_LABELS}print({names})"
    if head == "token_classification":
        tags = "[labels[str(i)] for i in logits[0].argmax(1)]"
        return _TWO, f"{_LABELS}print(list(zip(rows[0].tokens, {tags})))"
    if head == "encoder":
        name = "sentence_embedding"
        name = name if name in outputs else "last_hidden_state"
        return _TWO, f"print({name}.shape)"
    scores = next(iter(outputs))
    if config.attention == "causal":  # the last token is [SEP]
        text, place = '["The cat sat on"]', "-2"
    else:
        text = f'["The {mask} sat."]'
        # The token of a mask that takes the space before it is " <mask>".
        place = f'rows[0].ids.index(tokenizer.token_to_id("{mask}"))'
    best = f"{scores}[0, {place}].argmax()"
    return text, f"print(tokenizer.id_to_token(int({best})))"
