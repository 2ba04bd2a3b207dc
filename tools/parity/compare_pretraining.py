r"""Pretraining beside a loop of PyTorch with transformers: the loss against seconds.

    python tools/parity/compare_pretraining.py DATA --seconds 300 --output DIR

The same shape, rows, order and vocabulary on the same machine: the demo's model, by
its recipe; transformers' BertForPreTraining as its example script trains (15 % of the
tokens, dropout 0.1, rate 5e-5, linear decay), and tuned: no dropout, 25 % of the
tokens, warm-up and decay over the seconds, the best of three rates. All are scored on
the same masked tokens of the validation rows, outside the clock. DIR gets curves.json
and curves.svg; the table is printed. Not a test: pytest does not run it.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import matplotlib
import numpy as np
import optax
import torch
import transformers
from etils import epath
from matplotlib.figure import Figure

import bert_jax
from bert_jax.apps.demo.demo import PRETRAINING
from bert_jax.apps.experiments.design import with_changes
from bert_jax.checkpoints.steps import CHECKPOINTS, list_steps
from bert_jax.config import PretrainConfig
from bert_jax.config.model import Params
from bert_jax.pretrained import load_pretrained
from bert_jax.runs.pretraining import open_for, pretrain
from bert_jax.tasks.pretraining.task import PretrainingTask, pretraining_scores
from bert_jax.tasks.task import DeviceBatch

NUM_POINTS, EVERY, ROWS = 12, 100, 64


class Point(NamedTuple):
    """The score of masked tokens after some seconds of training, compiling included."""

    seconds: float
    loss: float
    accuracy: float


class Recipe(NamedTuple):
    """How the loop of PyTorch trains."""

    name: str
    rate: float
    masks: float = 0.25
    dropout: float = 0.0
    warmup: float = 0.1


RECIPES = (
    Recipe("as the example script", 5e-5, 0.15, 0.1, 0.0),
    *(Recipe(f"tuned, rate {rate:g}", rate) for rate in (1e-3, 2e-3, 4e-3)),
)


class Clock(bert_jax.Callback):
    """The seconds from the start to each logged step."""

    def __init__(self) -> None:
        """Start."""
        self.start, self.seconds = time.perf_counter(), {0: 0.0}

    def on_log(self, step: int, scalars: Mapping[str, float]) -> None:
        """Note the time."""
        self.seconds[step] = time.perf_counter() - self.start


def our_curve(
    config: PretrainConfig, seconds: float, workdir: Path, task: PretrainingTask
) -> list[Point]:
    """Pretrain for so long, and score each checkpoint."""
    clock = Clock()
    pretrain(config, workdir, callbacks=[clock], hours=seconds / 3600)

    @jax.jit
    def sums(params: Params, batch: DeviceBatch) -> Any:
        rows = task.mask_for_evaluation(batch)
        scores, _ = pretraining_scores(task.config.model, params, rows)
        labels, weights = rows.masked.labels, rows.masked.weights
        nats = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
        right = scores.argmax(axis=-1) == labels
        return (nats * weights).sum(), (right * weights).sum(), weights.sum()

    def at(seconds: float, params: Params) -> Point:
        totals = [sums(params, b) for b in task.batches.validation(ROWS)]
        nats, right, count = np.sum(jax.device_get(totals), axis=0)
        return Point(seconds, float(nats / count), float(right / count))

    points = [at(0.0, task.init_params(jax.random.key(config.seed)))]
    for step in list_steps(epath.Path(workdir) / CHECKPOINTS):
        model = load_pretrained(str(workdir / CHECKPOINTS / str(step))).placed()
        points.append(at(clock.seconds[step], model.params))
    return sorted(points)


def tensors(batch: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arguments of transformers' models, of rows with one pair each."""
    positions = np.arange(batch["tokens"].shape[1])
    inside, second = positions < batch["end"], positions >= batch["second"]
    arrays = {
        "input_ids": batch["tokens"],
        "attention_mask": inside,
        "token_type_ids": inside & second,
        "next_sentence_label": batch["next_sentence_label"][:, 0],
    }
    return {k: torch.from_numpy(a.astype(np.int64)) for k, a in arrays.items()}


def masked(row: dict[str, torch.Tensor], rate: float, task: PretrainingTask) -> Any:
    """Mask tokens as transformers' collator does: 80 % [MASK], 10 % a random token."""
    ids, tokenizer = row["input_ids"], task.dataset.tokenizer
    special = torch.tensor([*tokenizer.special_ids.values()])
    chosen = (torch.rand(ids.shape) < rate) & ~torch.isin(ids, special)
    kind = torch.rand(ids.shape)
    random = torch.randint(tokenizer.vocab_size, ids.shape)
    hidden = torch.where(kind < 0.8, tokenizer.mask_id, ids)
    hidden = torch.where((kind >= 0.8) & (kind < 0.9), random, hidden)
    labels = torch.where(chosen, ids, -100)
    return row | {"input_ids": torch.where(chosen, hidden, ids), "labels": labels}


def open_torch(recipe: Recipe, task: PretrainingTask) -> tuple[Any, Any]:
    """transformers' model of the same shape, and its AdamW."""
    torch.manual_seed(task.config.seed)
    own = task.config.model
    shape = transformers.BertConfig(
        vocab_size=own.vocab_size,
        hidden_size=own.hidden_size,
        num_hidden_layers=own.num_hidden_layers,
        num_attention_heads=own.num_attention_heads,
        intermediate_size=own.intermediate_size,
        max_position_embeddings=own.max_position_embeddings,
        hidden_dropout_prob=recipe.dropout,
        attention_probs_dropout_prob=recipe.dropout,
    )
    model = transformers.BertForPreTraining(shape).train()
    return model, torch.optim.AdamW(
        model.parameters(), lr=recipe.rate, weight_decay=0.01, fused=True
    )


def torch_curve(recipe: Recipe, seconds: float, task: PretrainingTask) -> list[Point]:
    """Train for so long, and score now and then, outside the clock.

    The rate rises and falls with the seconds: its schedule has the right length.
    """
    model, optimizer = open_torch(recipe, task)

    def at(seconds: float) -> Point:
        loss, accuracy = torch_score(model, task)
        return Point(seconds, loss, accuracy)

    spent, points = 0.0, [at(0.0)]
    for step in itertools.count():
        start, share = time.perf_counter(), spent / seconds
        rise = min(1.0, share / recipe.warmup) if recipe.warmup else 1.0
        rate = recipe.rate * rise * (1 - share) / (1 - recipe.warmup * (rise == 1))
        for group in optimizer.param_groups:
            group["lr"] = min(rate, recipe.rate)
        inputs = masked(tensors(task.batches.training(step)), recipe.masks, task)
        model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        spent += time.perf_counter() - start
        if spent >= len(points) * seconds / NUM_POINTS:
            points.append(at(spent))
            print(f"{recipe.name}: step {step + 1:,}, {points[-1]}", flush=True)
        if spent >= seconds:
            return points


@torch.inference_mode()
def torch_score(model: Any, task: PretrainingTask) -> tuple[float, float]:
    """Return nats and accuracy on the tokens that `our_curve` scores."""
    model.eval()
    total = np.zeros(3)
    for batch in task.batches.validation(ROWS):
        rows = jax.device_get(task.mask_for_evaluation(batch)).masked
        inputs = tensors(batch)
        del inputs["next_sentence_label"]
        inputs["input_ids"] = torch.from_numpy(rows.inputs.input_ids.astype(np.int64))
        logits = model(**inputs).prediction_logits
        places = torch.from_numpy(rows.predicted.astype(np.int64))
        picked = torch.take_along_dim(logits, places[..., None], dim=1).numpy()
        nats = optax.softmax_cross_entropy_with_integer_labels(picked, rows.labels)
        right = picked.argmax(axis=-1) == rows.labels
        total += [float((x * rows.weights).sum()) for x in (nats, right, 1.0)]
    model.train()
    return float(total[0] / total[2]), float(total[1] / total[2])


def seconds_to(loss: float, curve: Sequence[Point]) -> float:
    """Return when a curve reaches a loss, between its points; infinity: never."""
    for before, after in itertools.pairwise(curve):
        if after.loss <= loss:
            share = (before.loss - loss) / (before.loss - after.loss)
            return before.seconds + share * (after.seconds - before.seconds)
    return float("inf")


def table(curves: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    """Yield a row of Markdown for each curve: its end, and when ours is there."""
    ours = curves["bert_jax"]
    yield "| | seconds | nats | accuracy | bert_jax there after | ratio |"
    yield "|---|---|---|---|---|---|"
    for name, curve in curves.items():
        last = curve[-1]
        there = seconds_to(last.loss, ours)
        ends = f"{last.seconds:.0f} | {last.loss:.3f} | {last.accuracy:.1%}"
        yield f"| {name} | {ends} | {there:.0f} s | {there / last.seconds:.2f} |"


def draw(curves: Mapping[str, Sequence[Point]], path: Path) -> None:
    """Draw the loss against the seconds."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        axes.plot([p.seconds for p in curve], [p.loss for p in curve], label=name)
    axes.set_xlabel("seconds on two CPU cores")
    axes.set_ylabel("validation loss of masked tokens, nats")
    axes.legend(frameon=False)
    # As in experiments/plots.py: text stays text, and two calls write the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bert_jax"}):
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Train every side, and write and print the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    changes = {"data.path": options.data, "keep_checkpoints": 1000, "log_every": EVERY}
    config = with_changes(
        PRETRAINING,
        (*changes.items(), ("checkpoint_every", EVERY), ("eval_every", 1_000_000)),
    )
    scored = with_changes(
        config, (("masking.rate", 0.25), ("masking.max_predictions", 32))
    )
    data, resolved = open_for(scored)
    task = PretrainingTask(resolved, data)
    curves = {}
    for recipe in RECIPES:
        curves[f"transformers, {recipe.name}"] = torch_curve(
            recipe, options.seconds, task
        )
    curves["bert_jax"] = our_curve(
        config, options.seconds, options.output / "run", task
    )
    (options.output / "curves.json").write_text(json.dumps(curves, indent=1))
    draw(curves, options.output / "curves.svg")
    print(*table(curves), sep="\n")


if __name__ == "__main__":
    main()
