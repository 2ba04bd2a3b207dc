"""A tokenizer of single characters and few words, and questions to ask of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.examples import TokenizedExamples
from bert_jax.tasks.answers.rows import SquadExample
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!-'()"
WORDS = "where who was born in she the paris curie marie studied".split()


def tokenizer(words: list[str] = WORDS) -> Tokenizer:
    """Uncased; a word it does not have falls into its characters."""
    tokens = [*SPECIAL_TOKENS, *CHARACTERS, *(f"##{c}" for c in CHARACTERS)]
    vocabulary = "\n".join([*tokens, *words]) + "\n"
    return Tokenizer({"kind": "wordpiece", "cased": False}, vocabulary.encode())


CONTEXT = "Marie Curie was born in Warsaw. She studied in Paris."


def ask(
    answer: str | None = "Warsaw",
    id: str = "q1",
    context: str = CONTEXT,
    question: str = "Where was Marie Curie born?",
) -> SquadExample:
    """A question with its answer where it first stands; None: it is unanswerable."""
    answers = () if answer is None else ((answer, context.find(answer)),)
    return SquadExample(id, "Curie", question, context, answers, answer is None)


def perfect_outputs(
    tokenized: TokenizedExamples, length: int = 512
) -> list[dict[str, Any]]:
    """High scores at the labels; where the label is [CLS], at no other place."""
    outputs = []
    for start, end in tokenized.by_example["label"]:
        output = {name: np.full(length, -9, np.float32) for name in ("start", "end")}
        high = 9.0 if start else 0.0
        output["start"][start], output["end"][end] = high, high
        outputs.append(output)
    return outputs


def squad_json(path: Path, qas: list[Any], context: Any = CONTEXT) -> str:
    """A file of one paragraph; its path."""
    paragraph = {"context": context, "qas": qas}
    data = [{"title": "Curie", "paragraphs": [paragraph]}]
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    return str(path)


def qa(id: str = "q1", **fields: Any) -> dict[str, Any]:
    """A question as in the files."""
    answers = [{"text": "Warsaw", "answer_start": 24}]
    return {"id": id, "question": "Where?", "answers": answers} | fields
