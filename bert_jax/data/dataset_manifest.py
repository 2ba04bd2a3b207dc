"""Check every field of a dataset's manifest before it is used.

This is needed because manifests of version 0.1.0 have no checksum of their own.
"""

from etils import epath

from bert_jax.config.checks import require
from bert_jax.data.shards import dtype_from_json, row_dtype
from bert_jax.data.text_report import TextReport
from bert_jax.storage.files import JsonObject
from bert_jax.storage.manifest import MANIFEST, DamagedError, check_entries

FORMAT_VERSION = 1
SPLITS = ("train", "validation")
_NAMES = {
    int: "sequence_length vocab_size",
    str: "pairs",
    list: "row sources shards",
    dict: "options tokenizer counts dropped",
}
"""The names of the fields of each type."""


def check_manifest(root: epath.Path, manifest: JsonObject) -> None:
    """Check that a dataset's manifest has the fields and values that `prepare` writes.

    Raise DamagedError if a field is missing or wrong, or ValueError if the dataset has
    another format version.
    """
    version = manifest.get("format_version")
    if type(version) is int and version != FORMAT_VERSION:
        raise ValueError(
            f"{root} has format version {version}, but this bert_jax reads "
            f"{FORMAT_VERSION}; prepare it again."
        )
    try:
        require(type(version) is int, "it has no format_version")
        for kind, names in _NAMES.items():
            for name in names.split():
                valid = type(manifest.get(name)) is kind
                require(valid, f"{name} is missing or wrong")
        dtype, length = dtype_from_json(manifest["row"]), manifest["sequence_length"]
        (width,) = dtype["tokens"].shape
        problem = f"sequence_length={length}, but its rows have {width} tokens"
        require(length == width, problem)
        size, pairs = manifest["vocab_size"], manifest["pairs"]
        fits = row_dtype(length, size)["tokens"].base == dtype["tokens"].base
        require(size > 0 and fits, f"vocab_size={size} does not fit its rows")
        require(pairs in ("nsp", "sop", "none"), f"pairs={pairs!r:.80} is not known")
        tokenizer = manifest["tokenizer"]
        fingerprint = tokenizer.get("fingerprint")
        require(isinstance(fingerprint, str), "the tokenizer has no fingerprint")
        require(type(tokenizer.get("files")) is list, "the tokenizer has no files")
        check_entries(root, [*manifest["shards"], *tokenizer["files"]])
        for shard in manifest["shards"]:
            valid = _is_count(shard.get("rows")) and shard.get("split") in SPLITS
            require(valid, f"shard {shard['path']!r:.80} has no valid rows or split")
        _check_counts(manifest)
    except DamagedError:
        raise
    except ValueError as error:
        raise DamagedError(
            f"{root / MANIFEST} is not a dataset's manifest: {error}. Restore {root} "
            "from a copy, or prepare it again."
        ) from error


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _check_counts(manifest: JsonObject) -> None:
    """Check the counts: each position of a row holds a token or padding."""
    try:
        TextReport.of_manifest(manifest)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"dropped or text are wrong ({error})") from error
    require(all(isinstance(s, dict) for s in manifest["sources"]), "a source is wrong")
    require(set(manifest["counts"]) <= set(SPLITS), "counts has other splits")
    for split, counts in manifest["counts"].items():
        require(isinstance(counts, dict), f"counts of {split} are wrong")
        for name, value in counts.items():
            is_fraction = name.endswith("_share") and isinstance(value, (int, float))
            valid = 0 <= value <= 1 if is_fraction else _is_count(value)
            require(valid, f"{name}={value!r:.80} of {split} is not a count")
        rows = sum(s["rows"] for s in manifest["shards"] if s["split"] == split)
        positions = counts.get("tokens", 0) + counts.get("padding", 0)
        problem = f"the tokens and padding of {split} do not fill its {rows} rows"
        require(positions == rows * manifest["sequence_length"], problem)
