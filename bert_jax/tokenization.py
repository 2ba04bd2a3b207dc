"""One Tokenizer over two libraries: `tokenizers` (WordPiece) and `sentencepiece`.

A tokenizer is a directory of two files. `tokenizer_config.json` says `kind` and
`cased`, and how the vocabulary was made; the vocabulary itself is `vocab.txt`, one
token a line (BERT's own format), or sentencepiece's `tokenizer.model`. Casing stands
in no vocabulary file and a wrong guess is silent, so the JSON is required.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from etils import epath
from jaxtyping import Bool, Int32
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.storage.files import is_regular_file, name_path_in_errors
from bert_jax.storage.remote import open_directory

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of their ids in the vocabularies we train; elsewhere ids go by name."""
MAX_WORD_CHARACTERS = 200
"""Longer words are [UNK], as in the code of 2018 (Hugging Face's files say 100)."""
ACCENTS, CHINESE, WORD_LIMIT = (
    "strip_accents",
    "tokenize_chinese_chars",
    "max_input_chars_per_word",
)
"""Optional keys of a WordPiece tokenizer's configuration; Hugging Face's names."""
ADDED = "added_tokens"
"""Key of the tokens that are looked for in a text before it is cut into words."""
ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""How an added token is looked for, as in a `tokenizer.json`."""

_WORD_START = "\u2581"  # sentencepiece marks the first piece of a word with it


def bert_normalizer(
    cased: bool, strip_accents: bool | None = None, chinese: bool = True
) -> normalizers.Normalizer:
    """BERT's own: deletes controls, spaces CJK; uncased strips accents and case."""
    return normalizers.BertNormalizer(True, chinese, strip_accents, not cased)


def added_tokens(config: dict[str, Any]) -> list[AddedToken]:
    """The tokens that a tokenizer's configuration adds to its vocabulary."""
    return [AddedToken(**entry) for entry in config.get(ADDED, [])]


def is_text(content: str) -> bool:
    """Whether a string holds something, and no half of a pair of UTF-16."""
    return bool(content) and not any("\ud800" <= c <= "\udfff" for c in content)


def check_added(entries: Any) -> None:
    """Refuse what `added_tokens` cannot be.

    Raises:
        ValueError: an entry is not a token with its flags, or a token stands twice.
    """
    if not isinstance(entries, list):
        raise ValueError(f"{ADDED}={entries!r:.80} must be a list of tokens.")
    for entry in entries:
        flags = dict(entry) if isinstance(entry, dict) else {}
        content = flags.pop("content", None)
        known = flags.keys() <= set(ADDED_FLAGS)
        if (
            not isinstance(content, str)
            or not is_text(content)
            or not known
            or not all(isinstance(flag, bool) for flag in flags.values())
        ):
            raise ValueError(
                f"{ADDED} has the entry {entry!r:.80}, which must be an object with "
                f"content, a text, and of {', '.join(ADDED_FLAGS)} each true or false."
            )
    # The special tokens are tokens without it.
    contents = [*SPECIAL_TOKENS, *(entry["content"] for entry in entries)]
    token, count = collections.Counter(contents).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{ADDED} has {token!r} once too often; take it out there.")


class WordPiece:
    def __init__(self, lines: list[str], config: dict[str, Any]) -> None:
        ids = {token: i for i, token in enumerate(lines)}
        added = added_tokens(config)
        self.tokens = lines + [t.content for t in added if t.content not in ids]
        self.num_pieces = len(lines)
        self.continuing = [token.startswith("##") for token in self.tokens]
        limit = config.get(WORD_LIMIT, MAX_WORD_CHARACTERS)
        self._tokenizer = HuggingFaceTokenizer(
            models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
        )
        # Not the special ones: brackets are punctuation, so "[MASK]" in a text falls
        # apart. Those that are no line of the vocabulary get the ids that follow it.
        self._tokenizer.normalizer = bert_normalizer(
            config["cased"], config.get(ACCENTS), config.get(CHINESE, True)
        )
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._tokenizer.add_tokens(added)

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def inside_word(self, token_id: int) -> int | None:
        return token_id  # [MASK] ends a word in BERT: what follows is a new one

    def decode(self, tokens: Iterable[str]) -> str:
        return " ".join(tokens).replace(" ##", "")


class SentencePiece:
    def __init__(self, model: bytes) -> None:
        import sentencepiece  # only here: hosts that use WordPiece may lack it

        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        pieces = range(len(self._processor))
        self.tokens = [self._processor.id_to_piece(piece) for piece in pieces]
        self.num_pieces = len(self.tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self.continuing = [
            not token.startswith(_WORD_START) and token not in SPECIAL_TOKENS
            for token in self.tokens
        ]

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        found = self._processor.encode(text, return_type="offset_mapping")
        return found["ids"], found["offsets"]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        return ids

    def inside_word(self, token_id: int) -> int | None:
        """The same piece without its mark; None where nothing but the mark is left."""
        token = self.tokens[token_id]
        if token == _WORD_START:
            return None
        return self._ids.get(token.removeprefix(_WORD_START), token_id)

    def decode(self, tokens: Iterable[str]) -> str:
        spaced = (f" {t} " if t in SPECIAL_TOKENS else t for t in tokens)
        return " ".join("".join(spaced).replace(_WORD_START, " ").split())


Kind = Literal["wordpiece", "unigram", "bpe"]
TokenId = int | np.integer

_CONFIG = "tokenizer_config.json"
_MOST_CHARACTERS = 1 << 31


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The tokens of one text, without [CLS] and [SEP]."""

    ids: Int32[np.ndarray, " T"]
    offsets: Int32[np.ndarray, "T 2"]
    """Start and end of each token in the original text, in characters."""
    continues: Bool[np.ndarray, " T"]
    """Whether the token continues the word that an earlier token began."""


class Tokenizer:
    """Text to ids and back, for every kind of vocabulary."""

    def __init__(self, config: dict[str, Any], vocabulary: bytes) -> None:
        """A tokenizer of `config` (`kind`, `cased`, …) and its vocabulary file's bytes.

        Raises:
            ValueError: `config` lacks a field or has a wrong one; the vocabulary is
                damaged, has duplicate or blank lines, or lacks a special token.
        """
        _check_config(config)
        self.kind: Kind = config["kind"]
        self.cased: bool = config["cased"]
        self.config = config
        self.files = {
            _CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
            vocabulary_file(self.kind): vocabulary,
        }
        self._backend = _backend(config, vocabulary)
        self.vocab_size = len(self._backend.tokens)
        self.num_pieces = self._backend.num_pieces
        """Tokens of the vocabulary file; those after them are added to it."""
        self.special_ids = _special_ids(self._backend.tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.special_ids[name] for name in SPECIAL_TOKENS
        )
        self.continues_word: Bool[np.ndarray, " V"] = np.array(self._backend.continuing)
        self.continues_word.flags.writeable = False

    @classmethod
    def load(cls, directory: epath.PathLike) -> "Tokenizer":
        """Load the tokenizer in `directory`, or in `directory/tokenizer`.

        Raises:
            FileNotFoundError: the directory or one of its two files is missing.
            ValueError: as the constructor, with the file's path.
        """
        root = open_directory(directory)
        if not (root / _CONFIG).exists() and (root / "tokenizer").is_dir():
            root = root / "tokenizer"
        config = _read_config(root)
        path = root / vocabulary_file(config["kind"])
        if not is_regular_file(path):
            raise FileNotFoundError(
                f"{path} is {_lack(path)}; kind {config['kind']} needs it beside "
                f"{_CONFIG}."
            )
        try:
            tokenizer = cls(config, path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        tokenizer.files[_CONFIG] = (root / _CONFIG).read_bytes()
        return tokenizer

    def save(self, directory: epath.PathLike) -> None:
        """Write the files, with the bytes that were loaded; makes `directory`."""
        root = epath.Path(directory)
        root.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            with name_path_in_errors(root / name):
                (root / name).write_bytes(content)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal sha256 over the names and bytes of the tokenizer's files."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def encode(self, text: str, mask_token: bool = False) -> Encoding:
        """The tokens of `text` with their places in it; adds no special token.

        With `mask_token` every "[MASK]" in the text is one token, the special one;
        without, it is plain text like any other and never becomes a special id.
        """
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for i, part in enumerate(text.split("[MASK]") if mask_token else [text]):
            if i:
                ids.append(self.mask_id)
                offsets.append((start - len("[MASK]"), start))
            found, places = self._backend.encode(part)
            if i and found and not part[0].isspace():
                # The library took the part's start for a word's start; it is not.
                inside = self._backend.inside_word(found[0])
                found[:1] = [] if inside is None else [inside]
                places = places[len(places) - len(found) :]
            ids += found
            offsets += [(start + a, start + b) for a, b in places]
            start += len(part) + len("[MASK]")
        array, spans = np.array(ids, np.int32), np.array(offsets, np.int32)
        return Encoding(array, spans.reshape(-1, 2), self.continues_word[array])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, fast; special tokens' names in them are plain text.

        WordPiece uses as many threads as `TOKENIZERS_PARALLELISM` and
        `RAYON_NUM_THREADS` allow, sentencepiece one.
        """
        return self._backend.encode_batch(texts)

    def decode(self, ids: Iterable[TokenId]) -> str:
        """Readable text; normalisation is not undone, special tokens show by name."""
        return self._backend.decode(self.tokens(ids))

    def token(self, token_id: TokenId) -> str:
        """The vocabulary's entry for an id."""
        return self._backend.tokens[token_id]

    def tokens(self, ids: Iterable[TokenId]) -> list[str]:
        """The vocabulary's entries for some ids."""
        return [self._backend.tokens[i] for i in ids]


def vocabulary_file(kind: Kind) -> str:
    """Name of the file that holds a vocabulary of this kind."""
    return "vocab.txt" if kind == "wordpiece" else "tokenizer.model"


def _read_config(root: epath.Path) -> dict[str, Any]:
    path = root / _CONFIG
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is not a directory; `bert-jax vocab` makes a tokenizer."
        )
    if not is_regular_file(path):
        raise FileNotFoundError(
            f"{path} is {_lack(path)}; for a plain vocab.txt write "
            '{"kind": "wordpiece", "cased": false} into it, or true.'
        )
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        if isinstance(config, dict) and "kind" not in config:
            _refuse_hugging_face(root, config)
        _check_config(config)
    except RecursionError:
        raise ValueError(f"{path}: is not JSON that can be read: too deep.") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return config


def _refuse_hugging_face(root: epath.Path, config: dict[str, Any]) -> None:
    if "tokenizer_class" in config or (root / "tokenizer.json").exists():
        raise ValueError(
            f"{root} is a Hugging Face directory; `bert-jax convert import {root} "
            "--from huggingface --output CKPT`, then name CKPT/tokenizer."
        )


def _lack(path: epath.Path) -> str:
    return "not a file" if path.exists() else "missing"


def _check_config(config: Any) -> None:
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
    if type(limit) is not int or not 0 < limit < _MOST_CHARACTERS:
        raise ValueError(
            f"{WORD_LIMIT}={limit!r:.80} must be a whole number from 1 to "
            f"{_MOST_CHARACTERS - 1}; take 200, or 100 as Hugging Face's files have it."
        )
    if ADDED in config:
        check_added(config[ADDED])
        if config["kind"] != "wordpiece":
            raise ValueError(f"{ADDED} is of kind wordpiece alone; take it out.")


def _backend(config: dict[str, Any], vocabulary: bytes) -> WordPiece | SentencePiece:
    if config["kind"] == "wordpiece":
        return WordPiece(_vocabulary_lines(vocabulary), config)
    try:
        return SentencePiece(vocabulary)
    except RuntimeError as error:
        message = "is not a sentencepiece model; train one by `bert-jax vocab`."
        raise ValueError(message) from error


def _vocabulary_lines(vocabulary: bytes) -> list[str]:
    """The entries of a vocab.txt."""
    # Not splitlines: a token may be one of the rarer line breaks.
    lines = vocabulary.decode().removesuffix("\n").split("\n")
    tokens = [line.removesuffix("\r") for line in lines]
    for number, token in enumerate(tokens, 1):
        if not token.strip(" \t"):  # rarer white space may be a token
            raise ValueError(f"line {number} is blank; each line must hold one token.")
    token, count = collections.Counter(tokens).most_common(1)[0]
    if count > 1:
        first, second = [n for n, t in enumerate(tokens, 1) if t == token][:2]
        raise ValueError(f"line {second} repeats {token!r} of line {first}; keep one.")
    return tokens


def _special_ids(tokens: list[str]) -> dict[str, int]:
    ids = {token: i for i, token in enumerate(tokens) if token in SPECIAL_TOKENS}
    missing = [name for name in SPECIAL_TOKENS if name not in ids]
    if missing:
        raise ValueError(
            f"lacks {', '.join(missing)}; a vocabulary must hold each of "
            f"{' '.join(SPECIAL_TOKENS)}."
        )
    return {name: ids[name] for name in SPECIAL_TOKENS}
