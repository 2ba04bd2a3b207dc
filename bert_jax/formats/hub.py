"""Models at Hugging Face's hub: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION."""

import contextlib
import re
from pathlib import Path

from etils import epath

from bert_jax.formats.embedding import EMBEDDING_FILES
from bert_jax.formats.huggingface import CONFIG, TOKENIZER_FILES
from bert_jax.formats.imported import RECEIPT
from bert_jax.formats.model_files import CARD, short_reason
from bert_jax.formats.tensor_files import INDEX, SHARDS, SINGLE

HUB = "hf:"
_NAME = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)(?:@([\w./-]+))?")
_BARE = re.compile(r"\w[\w.-]*(/[\w.-]+)?(@[\w./-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def parse_name(name: str) -> tuple[str, str]:
    """Return the repository and the revision of a name; without one, "main".

    Raise ValueError if the name is malformed.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"{name!r} must be hf:OWNER/NAME or hf:OWNER/NAME@REVISION, as in "
            "hf:google-bert/bert-base-uncased."
        )
    return match[1], match[2] or "main"


def download(name: str) -> epath.Path:
    """Download a model; return its directory in the cache of the hub's library.

    Only safetensors, configuration, vocabulary and the model card are downloaded. Raise
    ValueError if the name is malformed, the model cannot be downloaded, or it has no
    safetensors.
    """
    repository, revision = parse_name(name)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"{name} needs huggingface_hub; install it by `pip install "
            "huggingface_hub`, or name a directory."
        ) from error
    files = [CONFIG, SINGLE, INDEX, SHARDS, RECEIPT, *TOKENIZER_FILES]
    files += [CARD, *EMBEDDING_FILES]
    # The first module of sentence-transformers may be the model, in a directory of its
    # own; any module has its configuration there.
    files += [f"0_*/{name}" for name in files] + [f"*/{CONFIG}"]
    try:
        path = snapshot_download(repository, revision=revision, allow_patterns=files)
    except Exception as error:
        # The library, and the HTTP client below it, raise many classes of errors.
        raise ValueError(
            f"{name} cannot be fetched: {short_reason(error, 200)} Download it "
            "elsewhere and name the directory."
        ) from error
    folder = epath.Path(path)
    if not any(folder.glob("*.safetensors")) and not any(folder.glob(f"0_*/{SINGLE}")):
        raise ValueError(
            f"{name} has no {SINGLE}, and pickles are not read; download it elsewhere, "
            "convert it as docs/interop.md shows under Pickles, and name the directory."
        )
    return folder


def pin(name: str) -> str:
    """Download a model; return its name with the commit in the place of a branch.

    Raise ValueError if the name is of no model, or the download failed.
    """
    commit = download(name).name  # the cache has a directory for each commit
    return f"{HUB}{parse_name(name)[0]}@{commit}" if _COMMIT.fullmatch(commit) else name


def cached_card(name: str) -> Path | None:
    """Return the card of a model that was downloaded; None if there is none."""
    with contextlib.suppress(ImportError):
        from huggingface_hub import try_to_load_from_cache

        repository, revision = parse_name(name)
        path = try_to_load_from_cache(repository, CARD, revision=revision)
        return Path(path) if isinstance(path, str) else None
    return None


def may_be(name: str, pinned: str) -> bool:
    """Return whether a branch of `name` may have been at the commit of `pinned`."""
    if not (name.startswith(HUB) and pinned.startswith(HUB)):
        return False
    repository, revision = parse_name(name)
    is_branch = _COMMIT.fullmatch(revision) is None
    return is_branch and repository == parse_name(pinned)[0]


def hint(path: str) -> str:
    """Return a question that names the hub, if a missing path may be one; or ""."""
    owner, slash, _ = path.partition("/")
    if not _BARE.fullmatch(path) or (slash and Path(owner).exists()):
        return ""
    owner = "google-bert/" if path.startswith("bert-") and not slash else ""
    return f" For a model of Hugging Face's hub, did you mean {HUB}{owner}{path}?"
