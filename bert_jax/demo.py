"""The whole story, offline: installed documentation in, a small pretrained BERT out."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.config import (
    BertConfig,
    DataConfig,
    MaskingConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
    VocabularyConfig,
)
from bert_jax.data.installed_documentation import write_corpus
from bert_jax.data.prepare import prepare
from bert_jax.data.records import Dataset, open_dataset
from bert_jax.predict import Predictor, load
from bert_jax.run import pretrain
from bert_jax.vocabulary import train_vocabulary

if TYPE_CHECKING:
    from rich.table import Table

VOCAB_SIZE, SEQUENCE_LENGTH, NUM_STEPS = 4096, 64, 2500
EXAMPLES, WORDS_OF_CONTEXT = 5, 12

# What a few minutes on two cores teach most, by measurement (docs/pretraining.md): no
# dropout, since hardly a row is seen twice; more masks than 15 %, since each is a
# lesson (Wettig et al. 2022); wider initialisation and shorter memory of Adam's; two
# heads, wide enough to tell the positions of a row apart.
CONFIG = PretrainConfig(
    model=BertConfig.tiny(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=SEQUENCE_LENGTH,
        initializer_range=0.05,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    data=DataConfig(sequence_length=SEQUENCE_LENGTH),
    masking=MaskingConfig(rate=0.25, max_predictions=17),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-3, warmup_steps=NUM_STEPS // 10, beta2=0.98
    ),
    num_steps=NUM_STEPS,
    batch_size=32,
    log_every=100,
    eval_every=NUM_STEPS,
    checkpoint_every=NUM_STEPS // 2,
)


def demo(workdir: str | os.PathLike[str]) -> None:
    """Corpus, vocabulary, dataset, model, and what it has learned, under `workdir`.

    What an earlier call has finished there is kept; what it began is gone on with.
    """
    root, start = Path(workdir), time.monotonic()
    corpus, vocabulary, data = root / "corpus", root / "vocabulary", root / "data"
    text = (str(corpus / "*.txt"),)
    print("1/4  Corpus: the documentation of the installed packages.", flush=True)
    if not (corpus / "corpus.json").exists():
        write_corpus(corpus)
    print("2/4  Vocabulary.", flush=True)
    if not vocabulary.exists():
        train_vocabulary(
            VocabularyConfig(input=text, output=str(vocabulary), vocab_size=VOCAB_SIZE)
        )
    print("3/4  Dataset.", flush=True)
    prepare(
        PrepareConfig(
            input=text,
            tokenizer=str(vocabulary),
            output=str(data),
            sequence_length=SEQUENCE_LENGTH,
        )
    )
    print("4/4  Pretraining.", flush=True)
    config = dataclasses.replace(
        CONFIG, data=dataclasses.replace(CONFIG.data, path=str(data))
    )
    scores = pretrain(config, root / "model")
    minutes = (time.monotonic() - start) / 60
    show(root, json.loads((corpus / "corpus.json").read_text()), scores, minutes)


def show(
    root: Path, corpus: dict[str, Any], scores: dict[str, float], minutes: float
) -> None:
    """Print what was learned beside what guessing gives, and where everything is."""
    from rich.console import Console

    Console(highlight=False).print(scores_table(scores))
    bert = load(root / "model")
    for text, hidden, guesses in examples(bert, open_dataset(root / "data")):
        print(f"  {text}")
        shown = ", ".join(f"{token} {share:.0%}" for token, share in guesses)
        print(f"    {hidden}?  {shown}")
    print(
        f"\nCorpus: {corpus['words']:,} words in {corpus['documents']:,} modules, "
        f"{corpus['duplicates']:,} duplicate paragraphs dropped, "
        f"sha256 {corpus['sha256'][:16]}.\n"
        f"Made in {minutes:.1f} minutes: {root}/corpus, vocabulary, data, model.\n"
        "\nNext, for instance:\n"
        f"  tensorboard --logdir {root}/model/tensorboard\n"
        "  bert-jax vocab --input 'YOUR/*.txt' --output YOUR_VOCABULARY\n"
        "  bert-jax pretrain --help\n"
        "and in Python:\n"
        f'  bert = bert_jax.load("{root}/model")\n'
        '  bert.fill_mask("Return the [MASK] of the array.")'
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


def examples(
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
