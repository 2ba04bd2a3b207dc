"""What the demo has to show when it is done."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.data.records import Dataset, open_dataset
from bert_jax.demo.paragraph_origins import PARTS
from bert_jax.inference.predictor import Predictor, load
from bert_jax.tasks.tables import read_table

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES, WORDS_OF_CONTEXT = 5, 12
READABLE = 160  # characters of a paragraph


def show(
    root: Path,
    corpus: dict[str, Any],
    scores: dict[str, float],
    accuracies: dict[str, float],
    minutes: float,
) -> None:
    """Print what was learned beside what guessing gives, and where everything is."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(scores_table(scores))
    bert = load(root / "model")
    for text, hidden, guesses in masked_words(bert, open_dataset(root / "data")):
        print(f"  {text}")
        shown = ", ".join(f"{token} {share:.0%}" for token, share in guesses)
        print(f"    {hidden}?  {shown}")
    print()
    console.print(origins_table(accuracies))
    for line in remarks(root, accuracies):
        print(textwrap.fill(line, 79))
    for text, library, guess, share in named_libraries(root):
        print(f"  {text}\n    {library}?  {guess} {share:.0%}")
    print(
        f"\nCorpus: {corpus['words']:,} words in {corpus['documents']:,} modules, "
        f"{corpus['duplicates']:,} duplicate paragraphs dropped, "
        f"sha256 {corpus['sha256'][:16]}.\n"
        f"Made in {minutes:.1f} minutes: {root}/corpus, vocabulary, data, model,\n"
        "origins, library_pretrained, library_from_scratch.\n"
        "\nNext, for instance:\n"
        f"  tensorboard --logdir {root}/model/tensorboard\n"
        "  bert-jax finetune text-classification --data.train YOUR.csv "
        f"--init-from {root}/model --workdir YOURS\n"
        "  bert-jax vocab --input 'YOUR/*.txt' --output YOUR_VOCABULARY\n"
        "  bert-jax pretrain --help\n"
        "and in Python:\n"
        f'  bert = bert_jax.load("{root}/model")\n'
        '  bert.fill_mask("Return the [MASK] of the array.")\n'
        f'  bert_jax.load("{root}/library_pretrained").classify(["Return the mean."])'
    )


def scores_table(scores: dict[str, float]) -> "Table":
    """The model's scores beside those of guessing."""
    from rich.table import Table

    table = Table(title="On validation text that was not trained on")
    for heading in ("", "model", "guessing", "by"):
        table.add_column(heading, justify="left" if heading in ("", "by") else "right")
    model, guess = (f"{scores[f'{kind}_loss']:.3f}" for kind in ("mlm", "unigram"))
    table.add_row("masked LM loss (nats)", model, guess, "frequency of each token")
    model, guess = (f"{scores[f'{kind}_accuracy']:.1%}" for kind in ("mlm", "unigram"))
    table.add_row("masked LM accuracy", model, guess, "the commonest token")
    pairs = f"{scores['nsp_accuracy']:.1%}"
    table.add_row("next sentence accuracy", pairs, "50.0%", "a coin")
    return table


def masked_words(
    bert: Predictor, dataset: Dataset
) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    """Validation text with one whole word masked, that word, and the likeliest three.

    The rows are spread evenly over the validation rows; the word is the row's middle
    one of at least four letters that is a single token.
    """
    tokenizer = bert.tokenizer
    numbers = np.linspace(0, len(dataset.validation) - 1, EXAMPLES * 3, dtype=np.int64)
    found = 0
    for row in dataset.validation.gather(numbers):
        ids = row["tokens"][1 : row["second"][0] - 1].astype(np.int64)
        starts = ~tokenizer.continues_word[ids]
        whole = starts & np.append(starts[1:], True)
        words = [
            i
            for i in np.flatnonzero(whole)
            if len(tokenizer.token(ids[i])) >= 4 and tokenizer.token(ids[i]).isalpha()
        ]
        if len(ids) < WORDS_OF_CONTEXT or not words or found == EXAMPLES:
            continue
        place = words[len(words) // 2]
        hidden = tokenizer.token(ids[place])
        before, after = (
            tokenizer.decode(ids[:place]),
            tokenizer.decode(ids[place + 1 :]),
        )
        text = f"{before} [MASK] {after}".strip()
        found += 1
        yield text, hidden, bert.fill_mask(text, k=3)


def origins_table(accuracies: dict[str, float]) -> "Table":
    """Accuracies on the paragraphs of validation modules."""
    from rich.table import Table

    table = Table(title="Which library is a paragraph from?")
    table.add_column("learned by")
    table.add_column("accuracy", justify="right")
    for name, accuracy in accuracies.items():
        table.add_row(name, f"{accuracy:.1%}")
    return table


def remarks(root: Path, accuracies: dict[str, float]) -> Iterator[str]:
    """What one must know to read `origins_table`."""
    train, validation = (read_origins(root, part) for part in PARTS)
    pretrained, drawn, words, _ = accuracies.values()
    yield (
        f"{len(train):,} paragraphs of {len({row['library'] for row in train})} "
        f"libraries to learn from, {len(validation):,} of other modules to tell, all "
        "without names. Pretraining read them too, with names but without labels. It "
        f"is worth {100 * (pretrained - drawn):+.1f} points here, with one seed."
    )
    if words > pretrained:
        yield (
            "No surprise that the linear model wins: which words occur tells nearly "
            "all, it sees each whole, and ours has read for minutes only."
        )


def read_origins(root: Path, part: str) -> list[dict[str, str]]:
    """The rows of one part of the task."""
    path = root / "origins" / f"{part}.csv"
    return [row.values for row in read_table(str(path))]


def named_libraries(root: Path) -> Iterator[tuple[str, str, str, float]]:
    """Validation paragraphs, their libraries, and the fine-tuned model's guesses.

    Spread evenly over the file, which goes from library to library.
    """
    rows = read_origins(root, "validation")
    chosen = [rows[(2 * i + 1) * len(rows) // (2 * EXAMPLES)] for i in range(EXAMPLES)]
    found = load(root / "library_pretrained").classify([row["text"] for row in chosen])
    for row, prediction in zip(chosen, found, strict=True):
        guess = prediction["label"]
        share = prediction["probabilities"][guess]
        text = textwrap.shorten(row["text"], READABLE, placeholder=" …")
        yield text, row["library"], guess, share
