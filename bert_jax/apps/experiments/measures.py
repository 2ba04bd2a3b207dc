"""Measures of a model: for each test item, the two numbers that a score sums."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float32, Num

from bert_jax.apps.experiments.bootstrap import Items, ScoreKind
from bert_jax.apps.experiments.design import (
    Budget,
    MaskedTokens,
    PairAccuracy,
    Probe,
    with_changes,
)
from bert_jax.apps.experiments.inputs import TaskFiles
from bert_jax.config.model import Params
from bert_jax.data.examples import TokenizedExamples
from bert_jax.inference.batching import compute_rows, predict_examples
from bert_jax.inference.evaluation import examples_config_of
from bert_jax.metrics.entities import extract_entities
from bert_jax.model.bert import compute
from bert_jax.model.inputs import inputs_of_tokenized
from bert_jax.pretrained import Model, load_pretrained
from bert_jax.runs.pretraining import open_for
from bert_jax.tasks.kinds import finetuning_task
from bert_jax.tasks.pretraining.task import PretrainingTask, pretraining_scores
from bert_jax.tasks.tagging.rows import learned_scheme
from bert_jax.tasks.task import DeviceBatch

_BATCH_SIZE = 64


def finetuned_items(task: TaskFiles, workdir: Path) -> tuple[Items, ScoreKind]:
    """Return the items of a fine-tuned model on the test file.

    Texts: whether the class is right, and 1. Sentences: twice the number of correct
    entities, and the number in the file and predicted, so that the quotient is F1; of
    plain labels, the number of right ones, and of words.
    """
    model = load_pretrained(str(workdir)).placed()
    data = examples_config_of(model)
    reader = finetuning_task(task.task, data, model.config)
    examples = reader.match_labels(reader.read(task.test))
    predictions = predict_examples(reader, model, examples, _BATCH_SIZE)
    has_entities = not task.is_text and learned_scheme(model.config)
    items = []
    for example, prediction in zip(examples, predictions, strict=True):
        if task.is_text:
            items.append((prediction["label"] == example.label, 1))
        elif has_entities:
            gold = set(extract_entities(example.tags))
            predicted = set(extract_entities(prediction["tags"]))
            items.append((2 * len(gold & predicted), len(gold) + len(predicted)))
        else:
            pairs = zip(example.tags, prediction["tags"], strict=True)
            right = sum(tag == other for tag, other in pairs)
            items.append((right, len(example.tags)))
    return np.array(items, np.float64), "ratio"


def probe_items(
    probe: Probe, task: TaskFiles, budget: Budget, workdir: Path
) -> tuple[Items, ScoreKind]:
    """Return whether logistic regression on hidden states finds each class, and 1.

    The states are standardised by those of the training texts. The model stays as it
    is (Devlin et al. 2018, §5.3).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = load_pretrained(str(workdir)).placed()
    reader = finetuning_task(task.task, task.config(budget.finetuning).data)
    vectors, labels = [], []
    train, test = reader.read(task.train), reader.read(task.test)
    classes = reader.model.changed(labels=reader.labels(train))
    reader = finetuning_task(task.task, reader.data, classes)
    for examples in map(reader.match_labels, (train, test)):
        texts = [dataclasses.replace(example, label=None) for example in examples]
        tokenized = reader.tokenize(texts, model.tokenizer)
        vectors.append(_text_vectors(probe, model, tokenized))
        labels.append([example.label for example in examples])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    classifier.fit(vectors[0], labels[0])
    right = classifier.predict(vectors[1]) == np.array(labels[1])
    return np.stack([right, np.ones(len(right))], axis=1).astype(np.float64), "ratio"


def _text_vectors(
    probe: Probe, model: Model, tokenized: TokenizedExamples
) -> Float32[np.ndarray, "N D"]:
    """Return one vector of each text: the state of [CLS], or the mean of all tokens."""

    @jax.jit
    def program(params: Params, batch: DeviceBatch) -> Float[Array, "B D"]:
        inputs = inputs_of_tokenized(batch)
        layers, combine = probe.layers, probe.combine
        states = compute(model.config, params, "features", inputs, layers, combine)
        if probe.pooling == "cls":
            return states[:, 0]
        # Pooled here: the states of all tokens of all texts would fill the memory.
        mask = inputs.attention_mask[:, :, None]
        return jnp.sum(states * mask, axis=1) / jnp.maximum(mask.sum(axis=1), 1)

    return np.stack(compute_rows(program, model, tokenized, _BATCH_SIZE))


def validation_items(
    measure: MaskedTokens | PairAccuracy, budget: Budget, dataset: str, workdir: Path
) -> tuple[Items, ScoreKind]:
    """Return two numbers of each validation row.

    Masked tokens: the loss in nats, and the number of predictions. Next sentence: the
    number of pairs that are right, and of all. The masks depend on the row and on
    `measure` alone: all variants have the same.
    """
    model = load_pretrained(str(workdir)).placed()
    base = with_changes(
        budget.pretraining, (*measure.changes, ("data.path", dataset), ("eval_rows", 0))
    )
    data, config = open_for(base, verify=False)
    task = PretrainingTask(config, data)

    @jax.jit
    def sums(
        params: Params, batch: DeviceBatch
    ) -> tuple[Num[Array, " B"], Num[Array, " B"]]:
        rows = task.mask_for_evaluation(batch)
        scores, pairs = pretraining_scores(model.config, params, rows)
        if isinstance(measure, PairAccuracy):
            is_right = jnp.argmax(pairs, axis=-1) == rows.pair_labels
            return is_right.sum(axis=1), (rows.pair_labels >= 0).sum(axis=1)
        masked = rows.masked
        nats = optax.softmax_cross_entropy_with_integer_labels(scores, masked.labels)
        return (nats * masked.weights).sum(axis=1), masked.weights.sum(axis=1)

    totals = [
        np.stack(jax.device_get(sums(model.params, batch)), axis=1)
        for batch in task.batches.validation(_BATCH_SIZE)
    ]
    items = np.concatenate(totals).astype(np.float64)
    is_pairs = isinstance(measure, PairAccuracy)
    return items[: len(data.validation)], "ratio" if is_pairs else "perplexity"
