"""Good files of every kind that is read, for the suites to damage copies of."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_files
import numpy as np
from bad_case import World
from etils import epath
from small_world import SUBJECTS

from bert_jax.cli.main import main
from bert_jax.config import FinetuneConfig, VocabularyConfig
from bert_jax.config.serialization import from_dict, to_dict
from bert_jax.data.example_cache import cached_examples
from bert_jax.data.examples import TokenizedExamples
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.storage.quiet_tensorflow import quiet_tensorflow
from bert_jax.tokenization import SPECIAL_TOKENS

_WORDS = (*SPECIAL_TOKENS, "the", "judge", "reads", "a", "book", "##s", ".")
_WIDTH, _POSITIONS = 8, 16
SENTENCES = (
    "The judge reads letter 3 in the garden, slowly.",
    "Größe und Maß: 中文 e\u0301 naïve 😀",
)
EXAMPLES = TokenizedExamples(
    tokens=np.arange(6, dtype=np.int32),
    starts=np.array([0, 3, 6]),
    second=np.ones(2, np.int32),
    example=np.arange(2, dtype=np.int32),
    by_example={"label": np.arange(2, dtype=np.int32)},
)
CONTEXT = "Marie Curie was born in Warsaw in 1867. She worked in Paris."


def write_all(folder: Path, world: World) -> None:
    """Every specimen, each in a directory of its own below `folder`."""
    for source, name in (
        (world.run, "run"),
        (world.dataset, "dataset"),
        (world.tokenizer, "wordpiece"),
        (world.encoder, "encoder"),
    ):
        shutil.copytree(source, folder / name)
    exported = ["--to", "huggingface", "--output", str(folder / "exported")]
    assert main(["convert", "export", str(world.run), *exported]) == 0
    _write_unigram(folder / "unigram", world)
    files = huggingface_files.stored("BertForPreTraining")
    files.write(folder / "model")
    files.write_shards(folder / "shards")
    _write_tokenizer_json(folder / "model")
    _write_tf1(folder / "uncased_tf1")
    _write_sweep(folder / "sweep", world)
    _write_tasks(folder / "tasks")
    cached_examples(epath.Path(folder / "cache"), "key", lambda: EXAMPLES)


def _write_unigram(folder: Path, world: World) -> None:
    texts = (str(world.corpus / "*.txt"),)
    train_vocabulary(
        VocabularyConfig(input=texts, output=str(folder), vocab_size=60, kind="unigram")
    )


def _write_tokenizer_json(folder: Path) -> None:
    """What transformers' fast tokenizer writes, beside vocab.txt."""
    from tokenizers import BertWordPieceTokenizer

    vocabulary = (folder / "vocab.txt").read_text().split()
    ids = {token: i for i, token in enumerate(vocabulary)}
    BertWordPieceTokenizer(ids, lowercase=True).save(str(folder / "tokenizer.json"))


def _write_tf1(folder: Path) -> None:
    """A model of one layer as the code of 2018 leaves it."""
    width, words = _WIDTH, len(_WORDS)
    square, row = (width, width), (width,)
    layer = "bert/encoder/layer_0/"
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (words, width),
        "bert/embeddings/token_type_embeddings": (2, width),
        "bert/embeddings/position_embeddings": (_POSITIONS, width),
        "bert/pooler/dense/kernel": square,
        "bert/pooler/dense/bias": row,
        layer + "intermediate/dense/kernel": (width, 16),
        layer + "intermediate/dense/bias": (16,),
        layer + "output/dense/kernel": (16, width),
        layer + "output/dense/bias": row,
    }
    for part in ("self/query", "self/key", "self/value", "output/dense"):
        shapes |= {f"{layer}attention/{part}/kernel": square}
        shapes |= {f"{layer}attention/{part}/bias": row}
    for part in ("bert/embeddings/", f"{layer}attention/output/", f"{layer}output/"):
        shapes |= {f"{part}LayerNorm/{name}": row for name in ("beta", "gamma")}
    generator = np.random.default_rng(0)
    tf = quiet_tensorflow()
    folder.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in shapes.items():
            values = generator.normal(0, 0.1, shape).astype(np.float32)
            tf.compat.v1.get_variable(name, initializer=values, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)
    config = {
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 16,
        "max_position_embeddings": _POSITIONS,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "type_vocab_size": 2,
        "vocab_size": words,
    }
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(_WORDS) + "\n")


def sweep_config(folder: Path) -> FinetuneConfig:
    """What the runs of `sweep` were begun with."""
    values = json.loads((folder / "runs.json").read_text())["config"]
    return from_dict(FinetuneConfig, values)


def _write_sweep(folder: Path, world: World) -> None:
    """The directory of two fine-tuning runs, the second of which was the better."""
    written = json.loads((world.classifier / "config.json").read_text())
    written.pop("history", None)
    config = from_dict(FinetuneConfig, written)
    config = dataclasses.replace(config, seed=0, num_epochs=1.0, init_from="gone")
    rate = config.optimizer.peak_learning_rate
    runs: list[dict[str, Any]] = []
    for seed in range(2):
        name = f"rate_{rate:g}_batch_{config.batch_size}_epochs_1_seed_{seed}"
        setting = f"rate {rate:g}, batch {config.batch_size}, epochs 1"
        scores = {"accuracy": 0.5 + seed / 4, "loss": 0.5, "baseline: x": 0.5}
        runs.append({"name": name, "setting": setting, "seed": seed, "scores": scores})
        shutil.copytree(world.classifier, folder / name)
    shutil.rmtree(folder / runs[0]["name"] / "checkpoints")
    values = {"config": to_dict(config), "best": runs[1]["name"], "runs": runs}
    (folder / "runs.json").write_text(json.dumps(values, indent=2) + "\n")


def _write_tasks(folder: Path) -> None:
    """A file of each format that a model is fine-tuned on."""
    folder.mkdir()
    rows = [
        (f"The {who} reads letter {i} in the garden.", f'He said "{i}", twice.', who, i)
        for i, who in enumerate(SUBJECTS[:4] * 3)
    ]
    names = ("sentence1", "sentence2", "label", "number")
    with open(folder / "train.csv", "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    tables = ["\t".join(map(str, row)) for row in (names, *rows)]
    (folder / "train.tsv").write_text("\n".join(tables) + "\n")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    words = "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\nGerman JJ I-NP B-MISC\n. . O O\n"
    breaks = "-DOCSTART- -X- -X- O\n\n"
    (folder / "train.conll").write_text((breaks + words + "\n" + words + "\n") * 2)
    tagged = {"tokens": ["In", "New", "Oslo"], "tags": ["O", "B-LOC", "I-LOC"]}
    (folder / "tags.jsonl").write_text((json.dumps(tagged) + "\n") * 3)
    (folder / "train.json").write_text(json.dumps(_squad()))
    choices = {"context": SENTENCES[0], "choices": ["He ends.", "He cries."]}
    lines = [json.dumps(choices | {"label": i % 2}) for i in range(4)]
    (folder / "choices.jsonl").write_text("\n".join(lines) + "\n")


def _squad() -> dict[str, Any]:
    answer = {"text": "Warsaw", "answer_start": CONTEXT.index("Warsaw")}
    asked = [
        {"id": "q1", "question": "Where?", "answers": [answer], "is_impossible": False},
        {"id": "q2", "question": "Why?", "answers": [], "is_impossible": True},
    ]
    paragraph = {"context": CONTEXT, "qas": asked}
    return {"version": "v2.0", "data": [{"title": "C", "paragraphs": [paragraph]}]}
