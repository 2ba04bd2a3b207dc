"""Describe when a pretraining run sees the rows that contain a text, and the masks."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.search import find_any, token_sequences, tokens_inside_words
from bert_jax.inference.arguments import require_text
from bert_jax.runs.pretraining_run import PretrainingRun, open_run
from bert_jax.storage.manifest import MANIFEST, read_manifest
from bert_jax.storage.remote import open_directory

_NUM_ROWS, _NUM_STEPS, _NUM_MASKS = 5, 10, 3
"""How many rows are shown, and for each how many steps, and how many masks. The rows
are those of the earliest steps."""
_NUM_TOKENS = 48
"""How many tokens are shown on either side of the text."""
_MASKED = " tokens predicted: "
_LEGEND = (
    "[MASK→cat]: cat is predicted, and the model sees [MASK]; [dog→cat]: it sees a "
    "random token; [cat→cat]: it sees cat itself"
)


def when_seen(path: str, texts: Sequence[str], workdir: str = "") -> Iterator[str]:
    """Lines that describe when a run sees the rows that contain each text.

    Raise FileNotFoundError if there is no run with a checkpoint, or its dataset is
    gone; ValueError if no row contains a text, the run is not one of pretraining, or
    the dataset is another than the run's.

    Args:
        path: the workdir of a pretraining run, or its dataset.
        texts: words, as in the text that was prepared.
        workdir: of the run, if `path` is a dataset.
    """
    directory = open_directory(path)
    has_manifest = (directory / MANIFEST).exists()
    is_dataset = has_manifest and "shards" in read_manifest(directory)
    if is_dataset != bool(workdir):
        raise ValueError(
            f"{path} is {'a' if is_dataset else 'not a'} dataset: with --when, name a "
            "dataset together with --run RUN, or the workdir of a run alone."
        )
    run = open_run(workdir, path) if workdir else open_run(path)
    searches = [search(run, text) for text in texts]
    yield from run_lines(run)
    for result in searches:
        yield from search_lines(run, result)


@dataclasses.dataclass(frozen=True)
class Search:
    """The rows that contain a text."""

    ids: tuple[int, ...]
    """The text's tokens, after a space."""
    num_training: int
    num_validation: int
    """How many rows contain them."""
    num_seen: int
    num_ahead: int
    """How often the steps that are done, and those to come, train on such a row."""
    earliest: list[tuple[int, int]]
    """The training rows of the earliest steps, and where the text begins in them."""


def search(run: PretrainingRun, text: str) -> Search:
    """Find the rows of a run's dataset that contain the tokens of a text.

    Raise ValueError if there are none, or the text is empty or no Unicode.
    """
    dataset, batches = run.dataset, run.task.batches
    ids, *others = token_sequences(dataset.tokenizer, require_text("when", text))
    if not ids:
        raise ValueError(f"when={text!r:.80} has no tokens; give some words.")
    inside = tokens_inside_words(dataset.tokenizer)
    special = dataset.tokenizer.cls_id, dataset.tokenizer.sep_id
    num_training = num_seen = num_total = 0
    num_epochs = batches.num_epochs_of_rows
    earliest: list[tuple[int, int, int]] = []
    for matches in find_any(dataset.train, [ids, *others], inside, special):
        num_training += len(matches.rows)
        num_seen += int(num_epochs(matches.rows, run.num_done).sum())
        num_total += int(num_epochs(matches.rows, run.config.num_steps).sum())
        # Each row is once in the first epoch.
        positions = batches.positions_of_rows(matches.rows, 0).tolist()
        places = zip(
            positions, matches.rows.tolist(), matches.starts.tolist(), strict=True
        )
        earliest = sorted([*earliest, *places])[:_NUM_ROWS]
    validation = find_any(dataset.validation, [ids, *others], inside, special)
    num_validation = sum(len(matches.rows) for matches in validation)
    if not num_training + num_validation:
        tokens = " ".join(dataset.tokenizer.tokens(ids))
        raise ValueError(
            f"No row of {dataset.path} contains {text!r:.80}, as the tokens "
            f"{tokens!r:.80}: {len(dataset.train):,} training rows and "
            f"{len(dataset.validation):,} validation rows were searched. Give whole "
            "words, and fewer: a row may begin or end within a text."
        )
    first = [(row, start) for _, row, start in earliest]
    ahead = num_total - num_seen
    return Search(ids, num_training, num_validation, num_seen, ahead, first)


def search_lines(run: PretrainingRun, result: Search) -> Iterator[str]:
    """Describe the rows that contain a text, and when the first of them are seen."""
    tokenizer, ids = run.dataset.tokenizer, result.ids
    unknown = ids.count(tokenizer.unk_id)
    note = f", {unknown} of them [UNK]: any unknown word" if unknown else ""
    yield (
        f"text: {' '.join(tokenizer.tokens(ids))} ({counted(len(ids), 'token')}{note})"
    )
    yield (
        f"in {counted(result.num_training, 'training row')}, and in "
        f"{counted(result.num_validation, 'validation row')}, on which no step trains"
    )
    yield (
        f"in all these rows seen {counted(result.num_seen, 'time')} until step "
        f"{run.num_done:,}, and {counted(result.num_ahead, 'time')} in the steps to "
        "come"
    )
    lines = []
    for row, start in result.earliest:
        window = slice(max(0, start - _NUM_TOKENS), start + len(ids) + _NUM_TOKENS)
        lines += [f"training row {row}:", *row_lines(run, row, window)]
    if any(_MASKED in line for line in lines):
        yield _LEGEND
    yield from lines
    if more := result.num_training - len(result.earliest):
        be = "is" if more == 1 else "are"
        yield f"{counted(more, 'more training row')} of later steps {be} not shown"


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: 1 row, 2 rows."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def run_lines(run: PretrainingRun) -> Iterator[str]:
    """Describe a run: how far it is, and what it does with its rows."""
    config, num_rows = run.config, len(run.dataset.train)
    yield (
        f"run {run.workdir}: {run.num_done:,} of {config.num_steps:,} steps are in its "
        f"newest checkpoint; {config.batch_size:,} of {num_rows:,} training rows a step"
    )
    if first := config.data.first_step:
        yield (
            f"its rows begin with step {first + 1:,}; the steps before are those of "
            f"{config.init_from}"
        )


def row_lines(run: PretrainingRun, row: int, window: slice) -> Iterator[str]:
    """Describe the steps that have seen and will see a row, and its first masks."""
    batches, done, end = run.task.batches, run.num_done, run.config.num_steps
    own = np.array([row])
    seen, total = (int(batches.num_epochs_of_rows(own, n)[0]) for n in (done, end))
    for verb, epochs, steps in (
        ("seen", range(seen), range(run.config.data.first_step, done)),
        ("will be seen", range(seen, total), range(done, end)),
    ):
        if not steps:
            continue
        places = [batches.place_of_row(row, epoch) for epoch in epochs[:_NUM_STEPS]]
        listed = ", ".join(f"{step + 1:,}" for step, _ in places)
        more = ", …" if len(epochs) > len(places) else ""
        yield (
            f"  {verb} {counted(len(epochs), 'time')} from step "
            f"{steps[0] + 1:,} to {steps[-1] + 1:,}"
            f"{f', at {listed}{more}' if places else ''}"
        )
        for step, place in places[:_NUM_MASKS]:
            yield mask_line(run, row, step, place, window)


def mask_line(
    run: PretrainingRun, row: int, step: int, place: int, window: slice
) -> str:
    """Return the tokens of a row in a window, as the model of a step sees them."""
    where = f"  step {step + 1:,}, row {place + 1:,} of the batch"
    batch = run.masked_row(row, step, place)
    if batch is None:
        return f"{where}: each token is predicted from those before it; none is masked"
    masked = batch.masked
    length = np.flatnonzero(masked.inputs.attention_mask[0])[-1] + 1
    inputs = np.asarray(masked.inputs.input_ids)[0, :length].tolist()
    is_used = np.asarray(masked.weights[0]) > 0
    predicted = np.asarray(masked.predicted)[0, is_used].tolist()
    labels = np.asarray(masked.labels)[0, is_used].tolist()
    tokenizer = run.dataset.tokenizer
    tokens = tokenizer.tokens(inputs)
    for position, label in zip(predicted, labels, strict=True):
        name = "MASK" if inputs[position] == tokenizer.mask_id else tokens[position]
        tokens[position] = f"[{name}→{tokenizer.token(label)}]"
    before = "… " * (window.start > 0)
    after = " …" * (window.stop < len(tokens))
    return (
        f"{where}, {len(predicted)} of {len(tokens)}{_MASKED}"
        f"{before}{' '.join(tokens[window])}{after}"
    )
