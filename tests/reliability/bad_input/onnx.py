"""Bad inputs: models, options and outputs of an export to ONNX."""

import dataclasses
import importlib.util
from collections.abc import Callable

from bad_case import Case, World
from etils import epath
from huggingface_files import stored

from bert_jax.apps.convert.receipts import write_imported
from bert_jax.cli.main import main
from bert_jax.formats.huggingface import read_huggingface
from bert_jax.tokenization import Tokenizer


def export(
    *options: str, model: str = "run", output: str = "onnx"
) -> Callable[[World], list[str]]:
    """An export of one of the good models."""
    return lambda world: [
        *("convert", "export", "--to", "onnx", str(getattr(world, model))),
        *("--output", str(world.folder / output), *options),
    ]


def characters(world: World) -> list[str]:
    """An export of a model whose vocabulary is of characters."""
    words = ["vocab", "--kind", "char", "--cased", "--vocab-size", "40"]
    words += ["--input", f"{world.corpus}/*.txt"]
    assert main([*words, "--output", str(world.folder / "vocabulary")]) == 0
    folder = stored("BertForMaskedLM").write(world.folder / "source")
    model = dataclasses.replace(
        read_huggingface(epath.Path(folder)),
        tokenizer=Tokenizer.load(world.folder / "vocabulary"),
    )
    write_imported(model, epath.Path(world.folder / "characters"))
    return [
        *("convert", "export", "--to", "onnx", str(world.folder / "characters")),
        *("--output", str(world.folder / "onnx")),
    ]


CASES = [
    Case(
        "onnx-of-characters",
        characters,
        ("a vocabulary of kind char", "--to stablehlo"),
    ),
    Case("onnx-of-a-table", export(model="table"), ("table",)),
    Case(
        "onnx-in-a-bucket",
        lambda world: [
            *("convert", "export", "--to", "onnx", str(world.run)),
            *("--output", "gs://bucket/onnx"),
        ],
        ("gs://bucket/onnx is not a local directory", "copy it to the bucket"),
    ),
    Case(
        "onnx-batch-size",
        export("--batch-size", "2"),
        ("batch_size=2 needs --to stablehlo",),
    ),
    Case(
        "onnx-length",
        export("--sequence-length", "16", model="classifier"),
        ("sequence_length=16 needs --to stablehlo",),
    ),
    Case("onnx-steps", export("--steps", "8"), ("steps=(8,) needs --to page",)),
    Case(
        "onnx-output-in-use",
        lambda world: [
            *("convert", "export", "--to", "onnx", str(world.run)),
            *("--output", str(world.dataset)),
        ],
        ("exists and is not an empty directory",),
    ),
]
if importlib.util.find_spec("onnx") is None:  # then each would name the package
    CASES = []
