"""Question answering as fine-tuning knows it: SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016 and 2018. The answer is a span of the document, or, in 2.0, none.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.model import ANSWERABLE_LABELS
from bert_jax.data.documents import split_sentences
from bert_jax.data.examples import TokenizedExamples
from bert_jax.metrics.squad import normalize_answer, squad1_scores, squad2_scores
from bert_jax.model.losses import Sum, cross_entropy
from bert_jax.tasks.problem import Prediction, Problem, Rows
from bert_jax.tasks.squad_answers import predict
from bert_jax.tasks.squad_files import question_of, read, write
from bert_jax.tasks.squad_rows import Record, encode

_PADDING = -1e9
"""A score that softmax makes 0 of, and a number still."""


def labels(records: Sequence[Record], config: ExamplesConfig) -> tuple[str, ...]:
    """`ANSWERABLE_LABELS` where a question is unanswerable, and none else.

    Raises:
        ValueError: classes are named; a question comes without its answer; no answer
            can be learned.
    """
    if config.labels:
        raise ValueError(
            f"labels={','.join(config.labels)}: question answering has no classes; "
            "leave it out."
        )
    for record in records:
        if not record.labelled:
            raise ValueError(
                f'question {record.id!r} has no "answers" to learn; add them.'
            )
    if not any(record.answers and not record.misplaced for record in records):
        raise ValueError(
            f"{config.train or config.path}: none of {len(records)} questions has an "
            "answer at its answer_start; there is nothing to learn."
        )
    return ANSWERABLE_LABELS if any(record.impossible for record in records) else ()


def check(records: Sequence[Record], model: BertConfig, path: str) -> None:
    """Unanswerable questions need a model that may say so.

    Raises:
        ValueError: the model was trained on answerable questions alone.
    """
    for record in records:
        if record.impossible and model.labels != ANSWERABLE_LABELS:
            raise ValueError(
                f"{path}: question {record.id!r} is unanswerable, and the model was "
                "trained on answerable questions alone; leave such questions out, or "
                "train on some."
            )


def notices(
    records: Sequence[Record], examples: TokenizedExamples, config: ExamplesConfig
) -> list[str]:
    """What encoding left out, a line each; to be printed once a file."""
    labels, cut = examples.by_example["label"], examples.by_example["cut"]
    unlearned = np.unique(examples.example[labels[:, 0] < 0]).tolist()
    ids = [records[i].id for i in unlearned if records[i].answers]
    found = []
    if ids:
        found.append(
            f"not trained on, since the answer does not stand at its answer_start: "
            f"{len(ids)} of {len(records)} questions: {', '.join(ids)}"
        )
    if num_cut := len(np.unique(examples.example[cut > 0])):
        found.append(
            f"cut to max_query_length={config.max_query_length} tokens: "
            f"{num_cut} of {len(records)} questions"
        )
    return found


def loss(config: BertConfig, scores: Float[Array, "B T 2"], rows: Rows) -> Sum:
    """Mean cross-entropy of start and end, in nats, and of how many examples.

    Over the real tokens. The code of 2018 has padding among the places to choose from,
    so that its loss depends on the length that a batch is padded to; ours does not.
    """
    label = rows["label"]
    weights = ((label[:, :1] >= 0) & (rows["end"][:, None] > 0)) * jnp.full(2, 0.5)
    return cross_entropy(_by_side(scores, rows), jnp.maximum(label, 0), weights)


def outputs(
    config: BertConfig, scores: Float[Array, "B T 2"], rows: Rows
) -> dict[str, jax.Array]:
    """`start` and `end` [B, T], in logits; of padding, a large negative number."""
    by_side = _by_side(scores, rows)
    return {"start": by_side[:, 0], "end": by_side[:, 1]}


def _by_side(scores: Float[Array, "B T 2"], rows: Rows) -> Float[Array, "B 2 T"]:
    real = jnp.arange(scores.shape[1]) < rows["end"][:, None, None]
    return jnp.where(real, scores.transpose(0, 2, 1), _PADDING)


def score(
    records: Sequence[Record],
    predictions: Sequence[Prediction],
    model: BertConfig,
    config: ExamplesConfig,
) -> dict[str, float]:
    """The official scores in per cent: of SQuAD 2.0 if a question is unanswerable.

    Of 2.0 also the best that a threshold on `null_odds` makes of these answers, and
    that threshold: what the official script says of the two files that `write` makes.
    As there, answers already taken back stay so: where the best threshold is not below
    `config.null_threshold`, a higher one may be better still.

    Raises:
        ValueError: a question comes without its answer.
    """
    answers = {record.id: [text for text, _ in record.answers] for record in records}
    for record in records:
        if not record.labelled:
            raise ValueError(f'question {record.id!r} has no "answers" to score by.')
    said = {prediction["id"]: prediction["answer"] for prediction in predictions}
    if not any(record.impossible for record in records):
        found = squad1_scores(answers, said)
        return {"f1": found["f1"], "exact_match": found["exact_match"]}
    null_odds = {p["id"]: p["null_odds"] for p in predictions}
    found = squad2_scores(answers, said, null_odds)
    names = {"f1": "f1", "exact_match": "exact"}
    for group in ("HasAns", "NoAns"):
        names |= {
            f"{group}_f1": f"{group}_f1",
            f"{group}_exact_match": f"{group}_exact",
        }
    for best in ("f1", "exact"):
        names |= {f"best_{best}": f"best_{best}"}
        names |= {f"best_{best}_threshold": f"best_{best}_thresh"}
    return {ours: float(found[name]) for ours, name in names.items() if name in found}


def baseline(
    train: Sequence[Record], validation: Sequence[Record]
) -> tuple[str, float]:
    """F1 without a model: some words of the sentence that is most like the question.

    As many as the answers to learn have on average, from a place drawn with a fixed
    seed. Where saying that no question is answerable scores higher, that.
    """
    generator = np.random.default_rng(0)
    sizes = [len(text.split()) for record in train for text, _ in record.answers[:1]]
    size = max(1, round(float(np.mean(sizes)))) if sizes else 1
    sentences: dict[str, list[str]] = {}
    said = []
    for record in validation:
        context = record.context
        if context not in sentences:
            sentences[context] = split_sentences(context, "split")
        span = _random_span(record.question, sentences[context], size, generator)
        said.append({"id": record.id, "answer": span, "null_odds": 0.0})
    none = [answer | {"answer": ""} for answer in said]
    scores = {
        name: score(validation, found, BertConfig(), ExamplesConfig())["f1"]
        for name, found in (
            ("random span in the best-overlap sentence", said),
            ("no answer to any question", none),
        )
    }
    name = max(scores, key=lambda name: scores[name])
    return name, scores[name]


def _random_span(
    question: str, sentences: Sequence[str], size: int, generator: np.random.Generator
) -> str:
    asked = set(normalize_answer(question).split())
    best = max(
        sentences,
        key=lambda sentence: len(asked & set(normalize_answer(sentence).split())),
    )
    words = best.split()
    start = int(generator.integers(max(1, len(words) - size + 1)))
    return " ".join(words[start : start + size])


QUESTION_ANSWERING = Problem(
    head="question_answering",
    read=read,
    labels=labels,
    check=check,
    encode=encode,
    loss=loss,
    outputs=outputs,
    predict=predict,
    score=score,
    write=write,
    baseline=baseline,
    record=question_of,
    labelled=lambda record: record.labelled,
    notices=notices,
    group=lambda record: record.title or record.context,
)
