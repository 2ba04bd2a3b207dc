"""The whole story, offline: installed documentation in, a small BERT out.

It is pretrained on that text, and then learns from few examples which library a
paragraph is from.
"""

import dataclasses
import json
import os
import time
from pathlib import Path

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
from bert_jax.data.prepare import prepare
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.demo.installed_documentation import write_corpus
from bert_jax.demo.paragraph_origins import (
    COLUMNS,
    PARTS,
    paragraph_origins,
    write_origins,
)
from bert_jax.demo.report import show
from bert_jax.runs.finetuning import BASELINE, finetune
from bert_jax.runs.pretraining import pretrain
from bert_jax.tasks.tables import read_table

VOCAB_SIZE, SEQUENCE_LENGTH, NUM_STEPS = 4096, 64, 3500
FINETUNING_STEPS = 240

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

# One recipe for both beginnings, and one evaluation at the end, so that nothing is
# chosen by the paragraphs that are scored. Few rows that come up many times need much
# dropout, and see the mean of all tokens sooner than [CLS] (docs/pretraining.md).
FINETUNING = FinetuneConfig(
    model=BertConfig(
        pooling="mean", hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    ),
    data=ExamplesConfig(
        text_columns=("text",), label_column="library", max_length=SEQUENCE_LENGTH
    ),
    optimizer=OptimizerConfig(
        peak_learning_rate=1e-3, warmup_steps=0, warmup_share=0.1
    ),
    num_steps=FINETUNING_STEPS,
    batch_size=32,
    log_every=100,
    eval_every=FINETUNING_STEPS,
    checkpoint_every=FINETUNING_STEPS,
)


def demo(workdir: str | os.PathLike[str]) -> None:
    """Corpus, vocabulary, dataset, model, and what it has learned, under `workdir`.

    What an earlier call has finished there is kept; what it began is gone on with.
    """
    root, start = Path(workdir), time.monotonic()
    make_dataset(root)
    print("4/5  Pretraining.", flush=True)
    data = dataclasses.replace(CONFIG.data, path=str(root / "data"))
    scores = pretrain(dataclasses.replace(CONFIG, data=data), root / "model")
    print("5/5  Fine-tuning: which library is a paragraph from?", flush=True)
    accuracies = learn_origins(root)
    minutes = (time.monotonic() - start) / 60
    corpus = json.loads((root / "corpus" / "corpus.json").read_text())
    show(root, corpus, scores, accuracies, minutes)


def make_dataset(root: Path) -> None:
    """Everything that pretraining takes, from installed packages."""
    corpus, vocabulary = root / "corpus", root / "vocabulary"
    text = (str(corpus / "*.txt"),)
    print("1/5  Corpus: the documentation of the installed packages.", flush=True)
    if not (corpus / "corpus.json").exists():
        write_corpus(corpus)
    print("2/5  Vocabulary.", flush=True)
    if not vocabulary.exists():
        train_vocabulary(
            VocabularyConfig(input=text, output=str(vocabulary), vocab_size=VOCAB_SIZE)
        )
    print("3/5  Dataset.", flush=True)
    prepare(
        PrepareConfig(
            input=text,
            tokenizer=str(vocabulary),
            output=str(root / "data"),
            sequence_length=SEQUENCE_LENGTH,
        )
    )


def learn_origins(root: Path) -> dict[str, float]:
    """Accuracies on paragraphs of modules that were not learned from, by what learned.

    Pretrained and not, one seed each, and a linear model of words beside them.
    """
    origins = root / "origins"
    if not origins.exists():
        write_origins(paragraph_origins(root / "corpus"), origins)
    train, validation = (str(origins / f"{part}.csv") for part in PARTS)
    data = dataclasses.replace(FINETUNING.data, train=train, validation=validation)
    config = dataclasses.replace(FINETUNING, data=data, init_from=str(root / "model"))
    found = {}
    for name, from_scratch in (("pretrained", False), ("from_scratch", True)):
        print(f"library_{name}:", flush=True)
        found[name] = finetune(
            dataclasses.replace(config, from_scratch=from_scratch),
            root / f"library_{name}",
            root / "examples",
        )
    guess = next(v for k, v in found["pretrained"].items() if k.startswith(BASELINE))
    return {
        "pretrained encoder": found["pretrained"]["accuracy"],
        "random initialisation": found["from_scratch"]["accuracy"],
        "TF-IDF and logistic regression": word_accuracy(train, validation),
        "the commonest library": guess,
    }


def word_accuracy(train: str, validation: str) -> float:
    """Accuracy of a linear model of the words and pairs of words in each text."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    (texts, labels), (asked, answers) = (
        [[row.values[name] for row in rows] for name in COLUMNS]
        for rows in (read_table(train), read_table(validation))
    )
    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(max_iter=1000),
    )
    return float(model.fit(texts, labels).score(asked, answers))
