"""One Tokenizer over two libraries, `tokenizers` and `sentencepiece`.

A tokenizer is a directory of two files. `tokenizer_config.json` holds `kind` and
`cased`, and how the vocabulary was made. The vocabulary is `vocab.txt` with one token
per line (BERT's format), sentencepiece's `tokenizer.model`, or a `tokenizer.json`. The
configuration is required, because vocabulary files do not hold the casing or the roles
of special tokens, and a wrong guess is silent.
"""

import dataclasses
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from etils import epath
from jaxtyping import Bool, Int32

from bert_jax.storage.files import JsonObject, is_regular_file, name_path_in_errors
from bert_jax.storage.remote import open_directory
from bert_jax.tokenization.library_file import LibraryFile, SentencePiece
from bert_jax.tokenization.special_tokens import (
    NAMES,
    SEGMENTS,
    SEPARATORS,
    SPECIAL_TOKENS,
)
from bert_jax.tokenization.wordpiece import (
    ACCENTS,
    ADDED,
    CHINESE,
    WORD_LIMIT,
    WordPiece,
    check_added,
    is_text,
)

Kind = Literal["wordpiece", "unigram", "bpe", "char", "huggingface"]
"""`huggingface` is any tokenizer of the library `tokenizers`, by its own file."""

_CONFIG = "tokenizer_config.json"
_MAX_WORD_LIMIT = (1 << 31) - 1
_CHARACTERS_AT_ONCE = 1 << 17
"""The library needs many bytes for each."""


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The tokens of one text, without [CLS] and [SEP]."""

    ids: Int32[np.ndarray, " T"]
    offsets: Int32[np.ndarray, "T 2"]
    """Start and end of each token in the original text, in characters."""
    continues: Bool[np.ndarray, " T"]
    """Whether the token continues a word that an earlier token began."""


class Tokenizer:
    """Converts text to ids and back, for every kind of vocabulary."""

    def __init__(self, config: JsonObject, vocabulary: bytes) -> None:
        """Make a tokenizer from `config` (`kind`, `cased`, …) and a vocabulary's bytes.

        Raise ValueError if a field of `config` is missing or wrong, or the vocabulary
        is damaged, has duplicate or blank lines, or lacks a special token.
        """
        _check_config(config)
        self.kind: Kind = config["kind"]
        self.cased: bool = config["cased"]
        self.config = config
        self.files = {
            _CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
            vocabulary_file(self.kind): vocabulary,
        }
        self._backend: WordPiece | SentencePiece | LibraryFile
        if self.kind == "wordpiece":
            self._backend = WordPiece(vocabulary, config)
        elif self.kind == "huggingface":
            self._backend = LibraryFile(vocabulary, config)
        else:
            self._backend = SentencePiece(vocabulary)
        self.vocab_size = len(self._backend.tokens)
        self.num_pieces = self._backend.num_pieces
        """The number of tokens in the vocabulary file; added tokens follow them."""
        own_names = {name: name for name in SPECIAL_TOKENS}
        self.special_names: dict[str, str] = config.get(NAMES, own_names)
        """The name of each role's token in the vocabulary."""
        self.special_ids = _special_ids(self._backend.tokens, self.special_names)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.special_ids[name] for name in SPECIAL_TOKENS
        )
        self.continues_word: Bool[np.ndarray, " V"] = np.array(self._backend.continuing)
        self.continues_word.flags.writeable = False
        sizes = list(map(self._backend.num_bytes, self._backend.tokens))
        self.num_bytes: Int32[np.ndarray, " V"] = np.array(sizes, np.int32)
        """UTF-8 bytes of each token and any space before it; 0 for special tokens."""
        self.num_bytes[[*self.special_ids.values()]] = 0
        self.num_bytes.flags.writeable = False
        self.word_limit = self._backend.word_limit
        """The most characters of a word; a longer one is [UNK]. None: no limit."""
        self.marks_starts = self._backend.marks_starts
        """Whether tokens tell where words start; those of some BPE tell nothing."""
        self.marks_ends = bool(self._backend.word_end)
        """Whether the vocabulary marks ends of words, and none of their starts."""

    def __repr__(self) -> str:
        case = "cased" if self.cased else "uncased"
        return f"Tokenizer({self.kind}, {self.vocab_size:,} tokens, {case})"

    @classmethod
    def load(cls, directory: epath.PathLike) -> "Tokenizer":
        """Load the tokenizer in `directory` or, if it has none, `directory/tokenizer`.

        Raise FileNotFoundError if the directory or one of its two files is missing, or
        ValueError as the constructor does, with the file's path.
        """
        root = open_directory(directory)
        if not (root / _CONFIG).exists() and (root / "tokenizer").is_dir():
            root = root / "tokenizer"
        config = _read_config(root)
        path = root / vocabulary_file(config["kind"])
        _require_file(path, f"kind {config['kind']} needs it beside {_CONFIG}")
        try:
            tokenizer = cls(config, path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        tokenizer.files[_CONFIG] = (root / _CONFIG).read_bytes()
        return tokenizer

    def save(self, directory: epath.PathLike) -> None:
        """Create `directory` and write the files, byte for byte as they were loaded."""
        root = epath.Path(directory)
        root.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            with name_path_in_errors(root / name):
                (root / name).write_bytes(content)

    @property
    def mask_token(self) -> str:
        """The name of the mask token: texts for `encode` have it at a mask."""
        return self.special_names["[MASK]"]

    @property
    def num_separators(self) -> int:
        """The number of [SEP] between the two texts of a pair."""
        return int(self.config.get(SEPARATORS, 1))

    @property
    def has_segments(self) -> bool:
        """Whether the second text of a pair has segment 1; else all have segment 0."""
        return bool(self.config.get(SEGMENTS, True))

    @property
    def fingerprint(self) -> str:
        """The hexadecimal sha256 of the names and bytes of the tokenizer's files."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def agrees_with(self, other: "Tokenizer") -> bool:
        """Whether both make the same tokens; exports have no record of the training."""
        one, two = (t.config | {"training": None} for t in (self, other))
        file = vocabulary_file(self.kind)
        return one == two and self.files[file] == other.files[file]

    def encode(self, text: str, mask_token: bool = False) -> Encoding:
        """Return the tokens of `text` with their offsets, without [CLS] and [SEP].

        With `mask_token`, each name of it in the text, such as "[MASK]", is the special
        token. Else it is plain text and never becomes a special id.
        """
        if isinstance(self._backend, LibraryFile):
            encoded, places = self._backend.encode(text, mask_token)
            return self._encoding(encoded, places)
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for i, part in enumerate(text.split("[MASK]") if mask_token else [text]):
            if i:
                ids.append(self.mask_id)
                offsets.append((start - len("[MASK]"), start))
            part_ids, part_offsets = self._backend.encode(part)
            if i and part_ids and not part[0].isspace():
                # No space follows [MASK], but the library assumes the start of a word.
                inside = self._backend.inside_word(part_ids[0])
                part_ids[:1] = [] if inside is None else [inside]
                part_offsets = part_offsets[len(part_offsets) - len(part_ids) :]
            ids += part_ids
            offsets += [(start + a, start + b) for a, b in part_offsets]
            start += len(part) + len("[MASK]")
        return self._encoding(ids, offsets)

    def _encoding(self, ids: list[int], offsets: list[tuple[int, int]]) -> Encoding:
        array, spans = np.array(ids, np.int32), np.array(offsets, np.int32)
        return Encoding(array, spans.reshape(-1, 2), self.continues_word[array])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts; names of special tokens are plain text.

        WordPiece uses as many threads as `TOKENIZERS_PARALLELISM` and
        `RAYON_NUM_THREADS` allow; sentencepiece uses one. Raise ValueError for one text
        or a table, whose characters or names of columns would be taken for texts.
        """
        if isinstance(texts, str) or hasattr(texts, "columns"):
            kind = type(texts).__name__
            raise ValueError(f"texts is of type {kind}; it must be a list of texts.")
        return self._backend.encode_batch(texts)

    def encode_each(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yield the ids of each text, of which those of few are in memory at a time."""
        part, size = list[str](), 0
        for text in texts:
            part.append(text)
            size += len(text)
            if size >= _CHARACTERS_AT_ONCE:
                yield from self.encode_batch(part)
                part, size = [], 0
        yield from self.encode_batch(part)

    def after_space(self, texts: Sequence[str]) -> Sequence[str]:
        """Return texts as they are encoded where a space stands before them.

        Byte-level BPE has other tokens for a word after a space than for one at the
        start. All others, and sentencepiece, have the same, and get the texts as given.
        """
        if self._backend.is_bytes:
            return [f" {text}" for text in texts]
        return texts

    def decode(self, ids: Iterable[int | np.integer]) -> str:
        """Return readable text: normalized, with special tokens as their names."""
        return self._backend.decode(self.tokens(ids))

    def token(self, token_id: int | np.integer) -> str:
        """Return the vocabulary's entry for an id; raise ValueError if it has none."""
        if not 0 <= token_id < self.vocab_size:  # -1 would be the last one
            raise ValueError(
                f"id {token_id} is not in the vocabulary, whose ids are 0 to "
                f"{self.vocab_size - 1}; leave out what is no token, such as -100."
            )
        return self._backend.tokens[token_id]

    def tokens(self, ids: Iterable[int | np.integer]) -> list[str]:
        """Return the vocabulary's entries for some ids."""
        return [self.token(i) for i in ids]


def vocabulary_file(kind: Kind) -> str:
    """Return the name of the file that holds a vocabulary of this kind."""
    names = {"wordpiece": "vocab.txt", "huggingface": "tokenizer.json"}
    return names.get(kind, "tokenizer.model")


def _read_config(root: epath.Path) -> JsonObject:
    path = root / _CONFIG
    name = shlex.quote(os.fspath(root))
    imported = f"`bert-jax convert import {name} --from huggingface --output CKPT`"
    if not root.is_dir():
        is_of_hub = os.fspath(root).startswith("hf:")
        made = "`bert-jax vocab` makes a tokenizer"
        remedy = f"run {imported}, then name CKPT" if is_of_hub else made
        raise FileNotFoundError(f"{root} is not a directory; {remedy}.")
    content = '{"kind": "wordpiece", "cased": false} (or true)'
    remedy = f"for a plain vocab.txt, write {content} into it"
    if (root / "tokenizer.json").exists():
        remedy = f"run {imported}, then name CKPT"
    _require_file(path, remedy)
    try:
        config = json.loads(path.read_bytes())
        if isinstance(config, dict) and "kind" not in config:
            names = ("tokenizer.json", "config.json")
            if "tokenizer_class" in config or any((root / n).exists() for n in names):
                raise ValueError(
                    f"{root} is a Hugging Face directory; run {imported}, then name "
                    "CKPT."
                )
        _check_config(config)
    except RecursionError:
        raise ValueError(f"{path}: is not JSON that can be read: too deep.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return config


def _require_file(path: epath.Path, remedy: str) -> None:
    if not is_regular_file(path):
        absence = "not a file" if path.exists() else "missing"
        raise FileNotFoundError(f"{path} is {absence}; {remedy}.")


def _check_config(config: object) -> None:
    if not isinstance(config, dict):
        raise ValueError("must be a JSON object with kind and cased.")
    choices = {"kind": get_args(Kind), "cased": (False, True)}
    choices |= {name: (False, True) for name in (ACCENTS, CHINESE) if name in config}
    for name, allowed in choices.items():
        value = config.get(name)
        # By type too: 1.0 equals True.
        if type(value) is not type(allowed[0]) or value not in allowed:
            options = ", ".join(json.dumps(value) for value in allowed)
            raise ValueError(f"{name}={value!r:.80} must be one of {options}.")
    limit = config.get(WORD_LIMIT, 1)
    if type(limit) is not int or not 0 < limit <= _MAX_WORD_LIMIT:
        raise ValueError(
            f"{WORD_LIMIT}={limit!r:.80} must be a whole number from 1 to "
            f"{_MAX_WORD_LIMIT}; use 200, or 100 as in Hugging Face's files."
        )
    if config["kind"] == "huggingface":
        _check_roles(config)
    if ADDED in config:
        check_added(config[ADDED])
        if config["kind"] != "wordpiece":
            raise ValueError(f"only kind wordpiece has {ADDED}; remove it.")


def _check_roles(config: JsonObject) -> None:
    value = config.get(NAMES)
    names = value if isinstance(value, dict) else {}
    valid = names.keys() == set(SPECIAL_TOKENS)
    if not valid or not all(isinstance(n, str) and is_text(n) for n in names.values()):
        raise ValueError(
            f"{NAMES}={names!r:.80} must name the token of each of "
            f"{' '.join(SPECIAL_TOKENS)}."
        )
    if (value := config.get(SEPARATORS, 1)) not in (1, 2) or type(value) is not int:
        raise ValueError(f"{SEPARATORS}={value!r:.80} must be 1 or 2.")
    if (value := config.get(SEGMENTS, True)) not in (True, False):
        raise ValueError(f"{SEGMENTS}={value!r:.80} must be true or false.")


def _special_ids(tokens: list[str], names: dict[str, str]) -> dict[str, int]:
    ids = {token: i for i, token in enumerate(tokens)}
    if missing := [name for name in names.values() if name not in ids]:
        raise ValueError(
            f"lacks {', '.join(missing)}; a vocabulary must hold each of "
            f"{' '.join(names.values())}."
        )
    return {role: ids[name] for role, name in names.items()}
