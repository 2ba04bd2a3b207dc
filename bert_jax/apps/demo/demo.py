"""The demo, offline: pretrain a small BERT on the documentation of installed packages.

It is then fine-tuned on a few examples to find which library a paragraph is from.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from bert_jax.apps.demo.report import print_report
from bert_jax.config import (
    BertConfig,
    DataConfig,
    ExamplesConfig,
    FinetuneConfig,
    MaskingConfig,
    OptimizerConfig,
    PrepareConfig,
    PretrainConfig,
    VocabularyConfig,
)
from bert_jax.data.installed_documentation import write_corpus
from bert_jax.data.paragraph_origins import (
    COLUMNS,
    SPLITS,
    paragraph_origins,
    write_origins,
)
from bert_jax.data.prepare import prepare
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.runs.finetuning import BASELINE, finetune
from bert_jax.runs.pretraining import pretrain
from bert_jax.storage.atomic import local_output
from bert_jax.storage.files import require_writable
from bert_jax.tables.read import read_table
from bert_jax.terminal.messages import say

VOCAB_SIZE, SEQUENCE_LENGTH, NUM_STEPS = 4096, 64, 2700
FINETUNING_STEPS = 240

# Measured to learn most in a few minutes on two cores (docs/pretraining.md): Muon for
# the kernels of layers (Liu et al. 2025); DeepNorm's sizes of the first ones (Wang et
# al. 2022), and heads that begin with neighbours, and with the same token of the other
# sentence; no dropout, since few rows are seen twice; a masking rate above 15 %, since
# each mask is a training signal (Wettig et al. 2022); a larger initialisation, a
# smaller beta2 for Adam and a larger decay; a short warm-up, and a rate that stays high
# until the last third (Hägele et al. 2024).
PRETRAINING = PretrainConfig(
    model=BertConfig.tiny(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=SEQUENCE_LENGTH,
        num_attention_heads=4,
        initializer_range=0.05,
        initializer="matching",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    data=DataConfig(sequence_length=SEQUENCE_LENGTH),
    masking=MaskingConfig(rate=0.3, max_predictions=19),
    optimizer=OptimizerConfig(
        algorithm="muon",
        peak_learning_rate=2e-3,
        schedule="constant",
        decay_share=0.3,
        warmup_steps=100,
        weight_decay=0.1,
        beta2=0.98,
    ),
    num_steps=NUM_STEPS,
    batch_size=32,
    log_every=100,
    eval_every=NUM_STEPS // 5,
    checkpoint_every=NUM_STEPS // 5,
    keep_checkpoints=5,
)

# The same for the pretrained and the random model, with one evaluation at the end, so
# that nothing is selected on the validation set. Few rows that repeat often need much
# dropout, and mean pooling learns faster from them than [CLS] (docs/pretraining.md).
FINETUNING = FinetuneConfig(
    model=BertConfig(
        pooling="mean", hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    ),
    data=ExamplesConfig(
        text_columns=("text",),
        label_column="library",
        max_length=SEQUENCE_LENGTH,
        num_buckets=2,  # compiling two more takes longer than the padding they save
    ),
    optimizer=FinetuneConfig.optimizer.changed(peak_learning_rate=1e-3),
    num_steps=FINETUNING_STEPS,
    batch_size=32,
    log_every=100,
    eval_every=FINETUNING_STEPS,
    checkpoint_every=FINETUNING_STEPS,
)


def demo(
    workdir: str | os.PathLike[str],
    pretraining: PretrainConfig = PRETRAINING,
    finetuning: FinetuneConfig = FINETUNING,
    write_corpus: Callable[[Path], object] = write_corpus,
) -> None:
    """Make corpus, vocabulary, dataset and models under `workdir`, and print scores.

    A second call resumes. Raise ValueError or OSError if `workdir` cannot be written.
    """
    require_writable(local_output(workdir, "workdir"))
    root, start = Path(workdir), time.monotonic()
    corpus, vocabulary = root / "corpus", root / "vocabulary"
    text = (str(corpus / "*.txt"),)
    say("This takes 2 to 6 minutes on two CPU cores that do nothing else.")
    say("1/5  Corpus: the documentation of the installed packages.")
    if not (corpus / "corpus.json").exists():
        write_corpus(corpus)
    say("2/5  Vocabulary.")
    if not vocabulary.exists():
        size = pretraining.model.vocab_size
        train_vocabulary(
            VocabularyConfig(input=text, output=str(vocabulary), vocab_size=size)
        )
    say("3/5  Dataset.")
    prepare(
        PrepareConfig(
            input=text,
            tokenizer=str(vocabulary),
            output=str(root / "data"),
            sequence_length=pretraining.data.sequence_length,
        )
    )
    say("4/5  Pretraining.")
    pretraining = pretraining.changed(data={"path": str(root / "data")})
    scores = pretrain(pretraining, root / "model")
    say("5/5  Fine-tuning: which library is a paragraph from?")
    accuracies = finetune_on_origins(root, finetuning)
    minutes = (time.monotonic() - start) / 60
    summary = json.loads((corpus / "corpus.json").read_text())
    print_report(root, summary, scores, accuracies, minutes)


def finetune_on_origins(root: Path, config: FinetuneConfig) -> dict[str, float]:
    """The validation accuracy of each model, by its name in the report.

    The models are the pretrained encoder, the same from random initialisation (one seed
    each), a linear model, and the most frequent class.
    """
    origins = root / "origins"
    if not origins.exists():
        write_origins(paragraph_origins(root / "corpus"), origins)
    train, validation = (str(origins / f"{split}.csv") for split in SPLITS)
    data = {"train": train, "validation": validation}
    config = config.changed(data=data, init_from=str(root / "model"))
    scores = {}
    for name, from_scratch in (("pretrained", False), ("from_scratch", True)):
        say(f"library_{name}:")
        scores[name] = finetune(
            config.changed(from_scratch=from_scratch),
            root / f"library_{name}",
            root / "examples",
        )
    pretrained = scores["pretrained"]
    baseline = next(v for name, v in pretrained.items() if name.startswith(BASELINE))
    return {
        "pretrained encoder": pretrained["accuracy"],
        "random initialisation": scores["from_scratch"]["accuracy"],
        "TF-IDF and logistic regression": linear_accuracy(train, validation),
        "the commonest library": baseline,
    }


def linear_accuracy(train: str, validation: str) -> float:
    """The validation accuracy of logistic regression on TF-IDF of words and bigrams."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    (texts, labels), (validation_texts, validation_labels) = (
        [[row.values[name] for row in rows] for name in COLUMNS]
        for rows in (read_table(train), read_table(validation))
    )
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(max_iter=1000),
    )
    model.fit(texts, labels)
    return float(model.score(validation_texts, validation_labels))
