"""Print the results of the demo."""

import math
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

from etils import epath
from rich.console import Console
from rich.table import Column, Table

import bert_jax
from bert_jax.apps.demo.picture import Points, draw_picture
from bert_jax.data.masked_texts import RULE, masked_texts, spread
from bert_jax.data.paragraph_origins import SPLITS
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.inference.predictor import Predictor, load
from bert_jax.storage.files import JsonObject
from bert_jax.tables.read import read_table
from bert_jax.training.metrics_file import METRICS, TRAIN, VALIDATION, read_metrics

EXAMPLES, MASKED_TEXTS = 5, 200
MAX_CHARACTERS = 160  # of a paragraph
SENTENCE = "This function returns a [MASK] of integers."
"""What the model fills in the picture."""


def print_report(
    root: Path,
    corpus: JsonObject,
    scores: dict[str, float],
    accuracies: dict[str, float],
    minutes: float,
) -> None:
    """Print scores beside baselines, example predictions, and where the files are.

    The web page and the picture are written before the lines that name them.
    """
    console = Console(highlight=False)
    console.print(scores_table(scores))
    bert = load(root / "model")
    examples = masked_examples(bert, open_dataset(root / "data"))
    print(*examples, "", sep="\n")
    console.print(origins_table(accuracies))
    for line in remarks(root, accuracies):
        print(textwrap.fill(line, 79))
    print(*classified_paragraphs(root), sep="\n")
    page, picture = root / "report.html", root / "picture.svg"
    print(
        f"\nCorpus: {corpus['words']:,} words in {corpus['documents']:,} modules, "
        f"{corpus['duplicates']:,} duplicate paragraphs dropped, "
        f"sha256 {corpus['sha256'][:16]}.\n"
        f"Made in {minutes:.1f} minutes: {root}/corpus, vocabulary, data, model,\n"
        "origins, library_pretrained, library_from_scratch.",
        flush=True,
    )
    write_picture(root, bert, scores["unigram_loss"], picture)
    bert_jax.run_page(root / "model", page)
    print(next_steps(root, page, picture), flush=True)


def next_steps(root: Path, page: Path, picture: Path) -> str:
    """Return what to look at, and what to type next."""
    model = shlex.quote(f"{root}/model")
    return (
        f"The loss and a filled mask as a picture: {picture}\n"
        f"\nLook at the pretraining in a browser, with curves and samples: {page}\n"
        "\nNext, for instance:\n"
        "  pip install 'bert_jax[tensorboard]'; "
        f"tensorboard --logdir {model}/tensorboard\n"
        "  bert-jax finetune text-classification --data.train YOUR.csv "
        f"--init-from {model} --workdir YOURS\n"
        "  bert-jax vocab --input 'YOUR/*.txt' --output YOUR_VOCABULARY\n"
        "  bert-jax pretrain --help\n"
        "and in Python:\n"
        f'  bert = bert_jax.load("{root}/model")\n'
        f'  bert.fill_mask("{SENTENCE}")\n'
        f'  bert_jax.load("{root}/library_pretrained").classify(["Return the mean."])'
    )


def write_picture(root: Path, bert: Predictor, guessing: float, path: Path) -> None:
    """Draw the loss of the pretraining, and what the model fills a mask with."""
    lines, _ = read_metrics(epath.Path(root / "model" / METRICS))

    def points(split: str) -> Points:
        own = [line for line in lines if line.split == split]
        losses = [(line.step, line.scalars["mlm_loss"]) for line in own]
        return [(step, loss) for step, loss in losses if math.isfinite(loss)]

    train, validation = points(TRAIN), points(VALIDATION)
    predictions = bert.fill_mask(SENTENCE, k=5)
    draw_picture(path, train, validation, guessing, SENTENCE, predictions)


def scores_table(scores: dict[str, float]) -> Table:
    """The model's scores beside those of guessing."""
    table = Table(title="On validation text that was not trained on")
    for name in ("", "model", "guessing", "by"):
        is_number = name in ("model", "guessing")
        table.add_column(name, justify="right" if is_number else "left")
    model, guess = (f"{scores[f'{kind}_loss']:.3f}" for kind in ("mlm", "unigram"))
    table.add_row("masked LM loss (nats)", model, guess, "frequency of each token")
    model, guess = (f"{scores[f'{kind}_accuracy']:.1%}" for kind in ("mlm", "unigram"))
    table.add_row("masked LM accuracy", model, guess, "the commonest token")
    pairs = f"{scores['nsp_accuracy']:.1%}"
    table.add_row("next sentence accuracy", pairs, "50.0%", "a coin")
    return table


def masked_examples(bert: Predictor, dataset: Dataset) -> Iterator[str]:
    """Validation texts with a masked word, the word, and the top three predictions.

    The last line says how often the first prediction is right, in these and others.
    """
    texts = masked_texts(dataset, MASKED_TEXTS, dataset.sequence_length - 2)
    filled = bert.fill_mask([text.text for text in texts], k=3)
    for masked, tokens in spread([*zip(texts, filled, strict=True)], EXAMPLES):
        predictions = ", ".join(f"{token} {p:.0%}" for token, p in tokens)
        yield f"  {masked.text}\n    {masked.answer}?  {predictions}"
    right = sum(
        text.answer == tokens[0][0] for text, tokens in zip(texts, filled, strict=True)
    )
    yield textwrap.fill(
        f"{right} of {len(texts)} such words are right. Of validation texts that are "
        f"spread evenly, the masked word is {RULE}; the {EXAMPLES} above are spread "
        "evenly over them.",
        79,
    )


def origins_table(accuracies: dict[str, float]) -> Table:
    """The validation accuracy of each model."""
    accuracy = Column("accuracy", justify="right")
    table = Table("learned by", accuracy, title="Which library is a paragraph from?")
    for name, value in accuracies.items():
        table.add_row(name, f"{value:.1%}")
    return table


def remarks(root: Path, accuracies: dict[str, float]) -> Iterator[str]:
    """Notes on `origins_table`: the data, and what pretraining contributes."""
    train, validation = (read_origins(root, split) for split in SPLITS)
    pretrained, from_scratch, linear, _ = accuracies.values()
    yield (
        f"{len(train):,} paragraphs of {len({row['library'] for row in train})} "
        f"libraries for training, {len(validation):,} of other modules for validation, "
        "all with library names removed. Pretraining used them too, with names but "
        "without labels. It is worth "
        f"{100 * (pretrained - from_scratch):+.1f} points here, with one seed."
    )
    if linear > pretrained:
        yield (
            "The linear model wins, as expected: the words of a paragraph nearly "
            "determine its library, and BERT was pretrained for a few minutes only."
        )


def read_origins(root: Path, split: str) -> list[dict[str, str]]:
    """The rows of one split of the task."""
    path = root / "origins" / f"{split}.csv"
    return [row.values for row in read_table(str(path))]


def classified_paragraphs(root: Path) -> Iterator[str]:
    """Validation paragraphs, their libraries, and predictions with probabilities.

    They are spread evenly over the file, which is sorted by library.
    """
    rows = read_origins(root, "validation")
    sample = [rows[(2 * i + 1) * len(rows) // (2 * EXAMPLES)] for i in range(EXAMPLES)]
    bert = load(root / "library_pretrained")
    predictions = bert.classify([row["text"] for row in sample])
    for row, prediction in zip(sample, predictions, strict=True):
        label = prediction["label"]
        text = textwrap.shorten(row["text"], MAX_CHARACTERS, placeholder=" …")
        p = prediction["probabilities"][label]
        yield f"  {text}\n    {row['library']}?  {label} {p:.0%}"
