"""Bad inputs: models of other libraries, to import, to load and to begin from."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bad_case import Case, World
from huggingface_files import Files, stored

Change = Callable[[Path], object]
TABLE = "bert.embeddings.word_embeddings.weight"
DEEP = "[" * 100_000
TOKENIZER, CONFIG = "tokenizer_config.json", "config.json"
TENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"


def model(world: World, change: Change, head: str = "BertForMaskedLM") -> Path:
    """A directory of transformers, damaged by `change`."""
    folder = stored(head).write(world.folder / "model")
    change(folder)
    return folder


def text(name: str, content: str) -> Change:
    """Put `content` into a file."""
    return lambda folder: (folder / name).write_text(content)


def setting(name: str, **values: Any) -> Change:
    """Set keys of a JSON file."""

    def change(folder: Path) -> None:
        path = folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | values))

    return change


def tensors(change: Callable[[Files], object], **config: Any) -> Change:
    """Change the tensors before they are written."""

    def write(folder: Path) -> None:
        files = stored("BertForMaskedLM")
        change(files)
        files.config |= config
        files.write(folder)

    return write


def header(content: Any, data: bytes = b"", length: int | None = None) -> Change:
    """A safetensors file with this header, which may lie about its length."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    start = struct.pack("<Q", len(raw) if length is None else length)
    return lambda folder: (folder / TENSORS).write_bytes(start + raw + data)


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> Any:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def index(content: str) -> Change:
    """An index instead of a file of tensors."""

    def change(folder: Path) -> None:
        (folder / TENSORS).rename(folder / "elsewhere.safetensors")
        (folder / INDEX).write_text(content)

    return change


def pipe(name: str) -> Change:
    """A pipe instead of a file: to read it would never end."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def modules(*places: str, kind: str = "Transformer") -> Change:
    """A modules.json, with what lies beside it."""
    listed = [
        {"path": place, "type": f"sentence_transformers.models.{name}"}
        for place, name in zip(places, (kind, "Pooling"), strict=False)
    ]

    def change(folder: Path) -> None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / CONFIG).write_text("{}")
        (folder / "modules.json").write_text(json.dumps(listed))

    return change


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def pickle(folder: Path) -> None:
    (folder / TENSORS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00." + bytes(60))


def imported(name: str, change: Change, *says: str) -> Case:
    """A case of `convert import`."""

    def command(world: World) -> list[str]:
        folder = model(world, change)
        target = str(world.folder / "checkpoint")
        line = ["convert", "import", str(folder), "--from", "huggingface"]
        return [*line, "--output", target]

    return Case(name, command, says)


def begun(name: str, change: Change, *says: str, options: tuple[str, ...] = ()) -> Case:
    """A case of `--init-from`."""

    def command(world: World) -> list[str]:
        folder = model(world, change)
        line = ["finetune", "text-classification", "--init-from", str(folder)]
        line += ["--data.train", str(world.folder / "absent.csv"), *options]
        return [*line, "--workdir", str(world.folder / "run"), "--mesh.data", "1"]

    return Case(name, command, says)


def exported(name: str, change: Change, *says: str) -> Case:
    """A case of `convert export`, which loads."""

    def command(world: World) -> list[str]:
        line = ["convert", "export", str(model(world, change)), "--to", "huggingface"]
        return [*line, "--output", str(world.folder / "exported")]

    return Case(name, command, says)


def extended(name: str, *options: str, says: tuple[str, ...]) -> Case:
    """A case of `convert extend` of the imported encoder."""

    def command(world: World) -> list[str]:
        line = ["convert", "extend", str(world.encoder), *options]
        return [*line, "--output", str(world.folder / "larger")]

    return Case(name, command, says)


def extra(files: Files) -> None:
    files.tensors["classifier.weight"] = np.zeros((2, 32), np.float32)


def half_wrapped(files: Files) -> None:
    files.tensors["module.x"] = np.zeros(2, np.float32)


def one_row_more(files: Files) -> None:
    files.tensors[TABLE] = np.resize(files.tensors[TABLE], (61, 32))
    files.tensors["cls.predictions.bias"] = np.zeros(61, np.float32)


NOT_JSON = "is not JSON that can be read"
CASES = [
    imported("F2-pickle", pickle, "pytorch_model.bin is a pickle", "weights_only=True",
             "safetensors.torch.save_file", "docs/interop.md"),
    begun("F2-init-from-pickle", pickle, "is a pickle", "docs/interop.md"),
    imported("F2-module-prefix-of-some", tensors(half_wrapped),
             "module.x and bert.", "DataParallel", "save the state of the"),
    imported("F2-quick-gelu", setting(CONFIG, hidden_act="quick_gelu"),
             "hidden_act='quick_gelu' must be one of gelu, gelu_python"),
    imported("F2-a-row-too-many", tensors(one_row_more, vocab_size=61),
             "60 tokens", "61 rows, which is not padding"),
    imported("F2-added-token-elsewhere", text("added_tokens.json", '{"<a>": 7}'),
             "added_tokens.json: the added token '<a>' has id 7, which is 'c'"),
    imported("F2-added-token-with-a-hole", text("added_tokens.json", '{"<a>": 70}'),
             "'<a>' has id 70, but the next free id is 60"),
    imported("F2-added-token-without-a-row", text("added_tokens.json", '{"<a>": 60}'),
             "61 tokens", "60 rows"),
    begun("F2-init-from-extra", tensors(extra), "classifier.weight", "--allow-extra"),
    begun("F2-init-from-extra-allowed", tensors(extra), "absent.csv",
          options=("--allow-extra",)),
    exported("F2-load-extra", tensors(extra), "load(…, allow_extra=True)"),
    imported("C2-modules-outside", modules("", "../x"),
             "modules.json names '../x', outside of"),
    imported("C2-modules-absolute", modules("", "/etc"), "names '/etc', outside of"),
    imported("D-modules-deep", text("modules.json", DEEP), NOT_JSON, "too deep"),
    imported("D-modules-object", text("modules.json", "{}"), "must be a list of mod"),
    imported("D-modules-null", text("modules.json", "[null]"), "must be a list of m"),
    imported("D-pooling-missing", modules("", "2_Pooling"), "2_Pooling/config.json is"),
    imported("D-pooling-list", both(modules("", "1_Pooling"),
             text("1_Pooling/config.json", "[]")), "1_Pooling/config.json holds []"),
    imported("D-pooling-mode", both(modules("", "1_Pooling"),
             text("1_Pooling/config.json", '{"pooling_mode": 3}')), "pooling_mode=3 m"),
    imported("D-max-seq-length", both(modules("", "1_Pooling"),
             text("sentence_bert_config.json", '{"max_seq_length": "8"}')),
             "max_seq_length='8' must be a number of tokens greater than 2"),
    imported("D-sentence-config-deep", both(modules("", "1_Pooling"),
             text("sentence_bert_config.json", DEEP)), NOT_JSON, "too deep"),
    *(
        imported(f"D-deep-{name}", text(name, DEEP), name, NOT_JSON, "too deep")
        for name in (CONFIG, TOKENIZER, "tokenizer.json", "special_tokens_map.json",
                     "added_tokens.json")
    ),
    *(
        imported(f"D-list-{name}", text(name, "[]"), f"{name} holds []", "fetch it ag")
        for name in (CONFIG, TOKENIZER, "tokenizer.json", "special_tokens_map.json",
                     "added_tokens.json")
    ),
    *(
        imported(f"C2-pipe-{name}", pipe(name), name, "not a regular file")
        for name in (CONFIG, TOKENIZER, "tokenizer.json", "vocab.txt", TENSORS)
    ),
    imported("D-twice", text(CONFIG, '{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
    imported("D-strip-accents", setting(TOKENIZER, strip_accents=1.0),
             "strip_accents=1.0 must be false or true"),
    imported("D-lower-case", setting(TOKENIZER, do_lower_case="x"),
             "do_lower_case='x' must be false or true"),
    imported("D-decoder", setting(TOKENIZER, added_tokens_decoder=[1]),
             "the added token [1] must have content"),
    imported("D-special", setting("special_tokens_map.json", mask_token=3),
             "mask_token=3 must be \"[MASK]\""),
    imported("D-more-special",
             setting("special_tokens_map.json", additional_special_tokens=["<x>"]),
             "the special token '<x>' has no id in any file"),
    imported("D-tokenizer-json", text("tokenizer.json", '{"model": 3}'),
             "tokenizer.json is no tokenizer"),
    imported("D-vocab-bytes", lambda f: (f / "vocab.txt").write_bytes(b"\xff\n"),
             "vocabulary", "utf-8"),
    imported("D-imported-hidden-size", setting(CONFIG, hidden_size=10**12),
             "hidden_size=1000000000000 is too large"),
    imported("D-layers", setting(CONFIG, num_hidden_layers=10**6),
             "num_hidden_layers=1000000", "tensors of 2"),
    imported("D-epsilon", setting(CONFIG, layer_norm_eps=None), "layer_norm_eps=None"),
    imported("D-imported-vocab-size", setting(CONFIG, vocab_size=True),
             "vocab_size=True must"),
    imported("D-architectures", setting(CONFIG, architectures=7), "architectures=7"),
    imported("C2-index-outside", index('{"weight_map": {"a": "../x"}}'),
             "names the file '../x'; a shard must be in the directory"),
    imported("C2-index-absolute", index('{"weight_map": {"a": "/dev/zero"}}'),
             "names the file '/dev/zero'; a shard must be in"),
    imported("D-index-number", index('{"weight_map": {"a": 7}}'), "a shard must be in"),
    imported("D-index-map", index('{"weight_map": []}'), "has no weight_map"),
    imported("D-index-deep", index(DEEP), INDEX, NOT_JSON),
    imported("C2-header-length", header({}, length=1 << 62), "header too large"),
    imported("C2-header-shape", header(entry(shape=(1 << 40,))),
             "model.safetensors is damaged or cut off", "invalid shape, data type, or"),
    imported("C2-header-offset", header(entry(offsets=(1 << 40, (1 << 40) + 4)), b"1"),
             "invalid offset for tensor `a`"),
    imported("C2-header-dtype", header(entry(dtype=["F32"]), b"1234"), "invalid type"),
    imported("C2-header-negative", header(entry(shape=(-1,)), b"1234"), "integer `-1`"),
    imported("C2-header-deep", header(b'{"a":' * 100_000), "recursion limit exceeded"),
    imported("C2-git-lfs", text(TENSORS, "version https://git-lfs.github.com/spec/v1"),
             "Git LFS pointer", "git lfs pull"),
    extended("D-positions", "--positions", "1" + "0" * 12,
             says=("positions=1000000000000 must be more than", "at most 1048576")),
    extended("D-positions-400-digits", "--positions", "9" * 400,
             says=("positions=9999", "at most 1048576")),
    extended("D-positions-negative", "--positions=-1", says=("positions=-1 must be",)),
    extended("D-words-missing", "--words", "/nonexistent/w", says=("/nonexistent/w",)),
]  # fmt: skip
