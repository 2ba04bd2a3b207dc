r"""Fine-tuning beside PyTorch + transformers: scores, first losses, speed.

    python tools/parity/compare_finetuning.py quality polarity \
        --init-from MODEL --train train.csv --validation dev.csv --text-columns review

MODEL is a Hugging Face directory; both sides begin from its files. PyTorch sees the
rows of tokens that our tasks made, in our order, and is scored by our metrics: model,
loss, dropout, optimizer and schedule are compared. Not a test: pytest does not run it.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from etils import epath

from bert_jax.config import ExamplesConfig, FinetuneConfig, OptimizerConfig
from bert_jax.data.examples import TokenizedExamples
from bert_jax.data.pipeline import Batch
from bert_jax.distributed import environment as backend
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import tree_shardings
from bert_jax.runs.finetuning import finetune, finetuning_of
from bert_jax.runs.finetuning_setup import FinetuningSetup, prepare_finetuning
from bert_jax.tasks.predictions import Splits
from bert_jax.tasks.task import Evaluation
from bert_jax.training.loop import Clock, device_batches
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.start import replace_params
from bert_jax.training.step import initial_state, make_train_step

CLASSES = {
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "token_classification": transformers.AutoModelForTokenClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering,
    "multiple_choice": transformers.AutoModelForMultipleChoice,
}
# Task, epochs, batch size, peak learning rate, max_length.
RECIPES: dict[str, tuple[Any, float, int, float, int]] = {
    "polarity": ("text-classification", 1.0, 32, 5e-5, 64),
    "wnut17": ("token-classification", 3.0, 16, 1e-4, 64),
    "codah": ("multiple-choice", 2.0, 16, 5e-5, 64),
    "xquad": ("question-answering", 2.0, 16, 1e-4, 256),
}
SCRIPTS_LENGTH = 128
"""What transformers' run_glue.py pads every row to, unless told otherwise."""


def recipe(options: argparse.Namespace, seed: int) -> FinetuneConfig:
    """The configuration of a run, scored once, at its end."""
    name, epochs, batch_size, rate, max_length = RECIPES[options.recipe]
    return FinetuneConfig(
        task=name,
        data=ExamplesConfig(
            train=options.train,
            validation=options.validation,
            text_columns=tuple(options.text_columns),
            max_length=max_length,
        ),
        optimizer=OptimizerConfig(
            peak_learning_rate=options.learning_rate or rate,
            warmup_steps=0,
            warmup_share=0.1,
        ),
        num_epochs=options.epochs or epochs,
        batch_size=options.batch_size or batch_size,
        init_from=options.init_from,
        seed=seed,
        eval_every=1_000_000,
        checkpoint_every=1_000_000,
    )


def prepare(config: FinetuneConfig) -> tuple[FinetuningSetup, FinetuningTask]:
    """The rows of both splits, and the task of our own training."""
    with tempfile.TemporaryDirectory() as empty:
        root = epath.Path(empty)
        setup = prepare_finetuning(config, root / "run", root / "examples")
    return setup, finetuning_of(setup)


@dataclasses.dataclass
class Torch:
    """transformers' model with its optimizer, as its example scripts set them up."""

    model: Any
    head: str
    optimizer: torch.optim.Optimizer
    schedule: Any

    def scores(self, batch: Batch) -> torch.Tensor:
        """The head's scores, shaped as ours."""
        outputs = self.model(**inputs_of(batch))
        if self.head == "question_answering":
            return torch.stack([outputs.start_logits, outputs.end_logits], -1)
        return outputs.logits

    def loss(self, batch: Batch) -> torch.Tensor:
        """The model's own loss."""
        length = batch["tokens"].shape[-1]
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        if self.head == "question_answering":
            # Positions outside the row are left out of the loss.
            start, end = torch.where(labels < 0, length, labels).unbind(1)
            targets = {"start_positions": start, "end_positions": end}
        else:
            targets = {"labels": torch.where(labels < 0, -100, labels)}
        return self.model(**inputs_of(batch), **targets).loss

    def real_loss(self, batch: Batch) -> torch.Tensor:
        """As `loss`, but answers are sought among the real tokens alone."""
        if self.head != "question_answering":
            return self.loss(batch)
        padding = ~inputs_of(batch)["attention_mask"].bool()
        scores = self.scores(batch).masked_fill(padding[:, :, None], -1e9)
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        return torch.nn.functional.cross_entropy(scores, labels, ignore_index=-1)

    def update(self, loss: torch.Tensor) -> float:
        """One step by the gradient of `loss`."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return float(loss.detach())


def inputs_of(batch: Batch) -> dict[str, torch.Tensor]:
    """The arguments of transformers' models, of a batch that `gather` made."""
    position = np.arange(batch["tokens"].shape[-1])
    inside = position < batch["end"][..., None]
    second = inside & (position >= batch["second"][..., None])
    return {
        "input_ids": torch.from_numpy(batch["tokens"].astype(np.int64)),
        "attention_mask": torch.from_numpy(inside.astype(np.int64)),
        "token_type_ids": torch.from_numpy(second.astype(np.int64)),
    }


def head_of(model: Any) -> torch.nn.Linear:
    """The linear layer on the encoder."""
    return getattr(model, "classifier", None) or model.qa_outputs


def open_torch(config: FinetuneConfig, **options: Any) -> Torch:
    """The model of `config.init_from`; its head is as likely as ours: not truncated."""
    torch.manual_seed(config.seed)
    if config.model.labels and config.model.head != "question_answering":
        options["num_labels"] = len(config.model.labels)
    model = CLASSES[config.model.head].from_pretrained(config.init_from, **options)
    named = dict(model.named_parameters())
    plain = [p for name, p in named.items() if "bias" in name or "LayerNorm" in name]
    rest = [p for p in named.values() if all(p is not other for other in plain)]
    o = config.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": rest, "weight_decay": o.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=o.peak_learning_rate,
        betas=(o.beta1, o.beta2),
        eps=o.epsilon,
        fused=True,
    )
    warmup = round(o.warmup_share * config.num_steps)
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, warmup, config.num_steps
    )
    return Torch(model.train(), config.model.head, optimizer, schedule)


@torch.inference_mode()
def torch_scores(side: Torch, task: FinetuningTask) -> dict[str, float]:
    """Our scores of PyTorch's outputs over the validation rows."""
    side.model.eval()
    total = count = 0.0
    outputs = []
    for batch in task.evaluation_batches():
        arrays = {name: jnp.asarray(values) for name, values in batch.items()}
        scores = jnp.asarray(side.scores(batch).float().numpy())
        of_batch = jax.device_get(task.outputs(scores))
        outputs.append(of_batch | {"row": batch["row"]})
        loss, number = task.label_loss(scores, arrays)
        total, count = total + float(loss), count + float(number)
    return task.score(Evaluation({"loss": total / count}, outputs))


def train_torch(
    options: argparse.Namespace, config: FinetuneConfig
) -> dict[str, float]:
    """PyTorch's scores after the last step."""
    setup, task = prepare(config)
    config = setup.config
    side = open_torch(config)
    if options.our_heads:
        take_head(side, our_step(setup, task)[0].params)
    batches: Iterator[Batch] = map(task.batch, range(config.num_steps))
    if options.shuffled:
        batches = shuffled_batches(setup.train.tokenized, config)
    for step, batch in enumerate(batches, start=1):
        of_batch = (side.real_loss if options.hide_padding else side.loss)(batch)
        loss = side.update(of_batch)
        if step % config.log_every == 0:
            print(
                f"step {step}/{config.num_steps}  PyTorch  loss {loss:.4f}", flush=True
            )
    return torch_scores(side, task)


def shuffled_batches(
    tokenized: TokenizedExamples, config: FinetuneConfig
) -> Iterator[Batch]:
    """As a usual data loader makes them: any rows, padded to the longest."""
    generator = np.random.default_rng(config.seed)
    waiting = np.zeros(0, np.int64)
    for _ in range(config.num_steps):
        while len(waiting) < config.batch_size:
            waiting = np.append(waiting, generator.permutation(len(tokenized)))
        numbers, waiting = np.split(waiting, [config.batch_size])
        yield tokenized.gather(numbers, int(tokenized.lengths[numbers].max()))


def train_ours(config: FinetuneConfig) -> dict[str, float]:
    """Our scores after the last step."""
    with tempfile.TemporaryDirectory() as workdir:
        return finetune(config, workdir)


def quality(options: argparse.Namespace) -> None:
    """Train both sides by each seed; append each run to the results, and sum up."""
    setup, _ = prepare(recipe(options, 0))
    splits = Splits(setup.train.examples, setup.validation.examples)
    rule, value = setup.task.baseline(splits)
    tokens = len(setup.train.tokenized.tokens)
    print(
        f"{options.recipe}: {len(splits.train)} examples to learn from "
        f"({len(setup.train.tokenized)} rows, {tokens} tokens), "
        f"{len(splits.validation)} to score on, {setup.config.num_steps} steps; "
        f"baseline: {rule} {value:.4f}",
        flush=True,
    )
    sides: dict[str, Callable[[FinetuneConfig], dict[str, float]]] = {
        "ours": train_ours,
        "torch": functools.partial(train_torch, options),
    }
    for seed in options.seeds:
        for name in options.sides:
            start = time.monotonic()
            scores = sides[name](recipe(options, seed))
            seconds = time.monotonic() - start
            which = name
            if name == "torch":
                which += " shuffled" * options.shuffled
                which += " our heads" * options.our_heads
                which += " hiding padding" * options.hide_padding
            line = {"recipe": options.recipe, "epochs": setup.config.num_epochs}
            line |= {"side": which, "seed": seed, "seconds": round(seconds, 1)}
            line |= {"baseline": value, "scores": scores}
            print(json.dumps(line), flush=True)
            with open(options.results, "a") as file:
                file.write(json.dumps(line) + "\n")
    table(options)


def table(options: argparse.Namespace) -> None:
    """What the results say: means, standard deviations, and whether they differ."""
    text = Path(options.results).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    named: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        named.setdefault(f"{line['recipe']}, {line['epochs']} epochs", []).append(line)
    for name, runs in named.items():
        metric = next(key for key in runs[0]["scores"] if key not in ("loss", "step"))
        values: dict[str, list[float]] = {}
        for run in runs:
            values.setdefault(run["side"], []).append(run["scores"][metric])
        print(f"{name}, {metric}; baseline {runs[0]['baseline']:.4f}")
        for side, scores in values.items():
            spread = statistics.stdev(scores) if len(scores) > 1 else math.nan
            listed = " ".join(f"{score:.4f}" for score in scores)
            mean = statistics.fmean(scores)
            print(f"  {side:32}{mean:8.4f} ± {spread:.4f}   {listed}")
        ours = values.get("ours", [])
        for side, theirs in values.items():
            if side == "ours" or min(len(ours), len(theirs)) < 2:
                continue
            pooled = math.hypot(statistics.stdev(ours), statistics.stdev(theirs))
            pooled /= math.sqrt(2)
            away = statistics.fmean(ours) - statistics.fmean(theirs)
            print(f"  ours - {side}: {away:+.4f}; pooled std {pooled:.4f}")


def our_step(setup: FinetuningSetup, task: FinetuningTask) -> tuple[Any, Any, Any]:
    """The state that a run begins with, its compiled step, and the mesh."""
    config = setup.config
    mesh = make_mesh(config.mesh, config.batch_size)
    optimizer = Optimizer.of(config)
    state = jax.jit(
        functools.partial(initial_state, task.init_params, optimizer, config.seed)
    )()
    given = setup.initial_params or {}
    state = dataclasses.replace(state, params=replace_params(state.params, given))
    shardings = tree_shardings(mesh, state)
    step = make_train_step(task, optimizer, config.microbatches, mesh, shardings)
    return jax.device_put(state, shardings), step, mesh


def take_head(side: Torch, params: Any) -> None:
    """Give PyTorch the head that ours begins with."""
    head, ours = head_of(side.model), jax.device_get(params["classifier"]["dense"])
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(ours["kernel"].T.copy()))
        head.bias.copy_(torch.from_numpy(ours["bias"].copy()))


def agree(options: argparse.Namespace) -> None:
    """The losses of the first steps from the same weights, without dropout."""
    config = recipe(options, options.seeds[0])
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = dataclasses.replace(config.model, **off)
    steps = options.steps
    config = dataclasses.replace(config, model=model, num_steps=max(steps, 10))
    setup, task = prepare(config)
    state, step, mesh = our_step(setup, task)
    side = open_torch(setup.config, **off)
    take_head(side, state.params)
    furthest = 0.0
    for number, arrays in enumerate(device_batches(task, 0, steps, mesh, Clock(1, 1))):
        state, scalars, _ = step(state, arrays)
        theirs = side.update(side.real_loss(task.batch(number)))
        furthest = max(furthest, abs(float(scalars["loss"]) - theirs))
        print(f"{number:4} {float(scalars['loss']):.6f} {theirs:.6f}")
    print(f"{options.recipe}: losses of {steps} steps differ by {furthest:.1e} at most")


class TorchTurns:
    """PyTorch's turns, in another process: the sides share no thread and no memory."""

    given: tuple[argparse.Namespace, FinetuningTask, Torch]

    @classmethod
    def begin(cls, options: argparse.Namespace, config: FinetuneConfig) -> None:
        """Prepare the process for its first turn."""
        torch.set_num_threads(options.threads)
        setup, task = prepare(config)
        side = open_torch(setup.config, attn_implementation=options.attention)
        cls.given = options, task, side

    @classmethod
    def take(cls, padding: str) -> tuple[float, float]:
        """Wall and CPU seconds of the steps, padded as our batches or as scripts'."""
        options, task, side = cls.given

        def run() -> None:
            for number in range(options.steps):
                batch = task.batch(number)
                if padding == "scripts_padding":
                    tokenized = task.train.tokenized
                    batch = tokenized.gather(task.row_numbers(number), SCRIPTS_LENGTH)
                side.update(side.loss(batch))

        return timed(run)


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds that it takes."""
    wall, cpu = time.monotonic(), time.process_time()
    run()
    return time.monotonic() - wall, time.process_time() - cpu


def speed(options: argparse.Namespace) -> None:
    """TokenizedExamples a second over the same training steps, the sides by turns.

    Each side has gone over all these steps once before anything is timed.
    """
    config = dataclasses.replace(recipe(options, options.seeds[0]), num_steps=10_000)
    setup, task = prepare(config)
    state, step, mesh = our_step(setup, task)

    def ours() -> None:
        nonlocal state
        for arrays in device_batches(task, 0, options.steps, mesh, Clock(1, 1)):
            state, scalars, _ = step(state, arrays)
        jax.block_until_ready((state, scalars))

    spent: dict[str, list[tuple[float, float]]] = {}
    if not options.huge_pages:
        os.environ.pop("GLIBC_TUNABLES", None)  # as users start PyTorch
    process = ProcessPoolExecutor(
        1, get_context("spawn"), TorchTurns.begin, (options, config)
    )
    with process:
        for turn in range(1 + options.turns):
            for name in ("ours", "same_padding", "scripts_padding"):
                if name == "ours":
                    seconds = timed(ours)
                else:
                    seconds = process.submit(TorchTurns.take, name).result()
                if turn:
                    spent.setdefault(name, []).append(seconds)
    number = options.steps * config.batch_size
    for name, turns in spent.items():
        rates = " ".join(f"{number / wall:.1f}" for wall, _ in turns)
        wall, cpu = (statistics.median(values) for values in zip(*turns, strict=True))
        print(
            f"{name:16}{number / wall:7.1f} examples/s, {number / cpu:6.1f} a CPU "
            f"second; examples/s of each turn: {rates}"
        )
    for name in ("same_padding", "scripts_padding"):
        pairs = zip(spent["ours"], spent[name], strict=True)
        ratios = [[b / a for a, b in zip(*pair, strict=True)] for pair in pairs]
        wall, cpu = (statistics.median(values) for values in zip(*ratios, strict=True))
        print(f"ours / {name}: {wall:.2f}, by CPU time {cpu:.2f} (medians of turns)")


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    for function in (quality, agree, speed):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        command.add_argument("recipe", choices=list(RECIPES))
        for name in ("--init-from", "--train", "--validation"):
            command.add_argument(name, required=True)
        command.add_argument("--text-columns", nargs="*", default=[])
        command.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
        command.add_argument("--epochs", type=float, help="in place of the recipe's")
        command.add_argument("--batch-size", type=int, help="as --epochs")
        command.add_argument("--learning-rate", type=float, help="as --epochs")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--steps", type=int, default=20, help="agree, speed")
        command.add_argument("--turns", type=int, default=7, help="speed")
        command.add_argument("--attention", default="sdpa", help="speed; PyTorch's")
        command.add_argument(
            "--huge-pages", action="store_true", help="speed; for PyTorch, as for ours"
        )
        command.add_argument("--sides", nargs="+", default=["ours", "torch"])
        command.add_argument("--shuffled", action="store_true", help="PyTorch's order")
        command.add_argument(
            "--our-heads",
            action="store_true",
            help="quality; PyTorch's head begins as ours, and not only as likely",
        )
        command.add_argument(
            "--hide-padding",
            action="store_true",
            help="quality; PyTorch seeks no answer in padding, as we seek none",
        )
        command.add_argument("--results", default="comparison.jsonl", help="quality")
    command = commands.add_parser("table")
    command.set_defaults(function=table, threads=2)
    command.add_argument("--results", default="comparison.jsonl")
    options = parser.parse_args()
    backend.reexec_with_huge_pages(os.environ)  # as our verbs do
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    options.function(options)


if __name__ == "__main__":
    main()
