"""One Tokenizer over two libraries: `tokenizers` (WordPiece) and `sentencepiece`.

A tokenizer is a directory of two files. `tokenizer_config.json` holds `kind` and
`cased`, and how the vocabulary was made. The vocabulary is `vocab.txt` with one token
per line (BERT's format), or sentencepiece's `tokenizer.model`. The JSON is required,
because vocabulary files do not hold the casing and a wrong guess is silent.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import numpy as np
from etils import epath
from jaxtyping import Bool, Int32
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.storage.files import JsonObject, is_regular_file, name_path_in_errors
from bert_jax.storage.remote import open_directory

Kind = Literal["wordpiece", "unigram", "bpe", "char"]
TokenId = int | np.integer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""In the order of their ids in vocabularies trained here; others may use other ids."""
MAX_WORD_CHARACTERS = 200
"""Longer words are [UNK], as in the 2018 code (100 in Hugging Face's files)."""
WORD_LIMIT = "max_input_chars_per_word"
ACCENTS, CHINESE = "strip_accents", "tokenize_chinese_chars"
"""Optional keys of a WordPiece tokenizer's configuration, named as in Hugging Face."""
ADDED = "added_tokens"
"""Key of the tokens that are matched in a text before it is split into words."""
ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""Flags that control how an added token is matched, as in a `tokenizer.json`."""

_CONFIG = "tokenizer_config.json"
_MAX_WORD_LIMIT = (1 << 31) - 1
_WORD_START = "\u2581"  # sentencepiece's mark of the first piece of a word


def bert_normalizer(
    cased: bool, strip_accents: bool | None = None, chinese: bool = True
) -> normalizers.Normalizer:
    """Return BERT's normalizer.

    It deletes control characters and puts spaces around CJK characters; if uncased, it
    strips accents and converts to lower case.
    """
    return normalizers.BertNormalizer(True, chinese, strip_accents, not cased)


def added_tokens(config: JsonObject) -> list[AddedToken]:
    """Return the tokens that a tokenizer's configuration adds to its vocabulary."""
    return [AddedToken(**entry) for entry in config.get(ADDED, [])]


def is_text(content: str) -> bool:
    """Return whether a string is not empty and has no surrogate code point."""
    return bool(content) and not any("\ud800" <= c <= "\udfff" for c in content)


def check_added(entries: object) -> None:
    """Raise ValueError if an entry is not a token with its flags, or is repeated."""
    if not isinstance(entries, list):
        raise ValueError(f"{ADDED}={entries!r:.80} must be a list of tokens.")
    for entry in entries:
        flags = dict(entry) if isinstance(entry, dict) else {}
        content = flags.pop("content", "")
        is_token = isinstance(content, str) and is_text(content)
        known = flags.keys() <= set(ADDED_FLAGS)
        if not (is_token and known and all(type(f) is bool for f in flags.values())):
            raise ValueError(
                f"{ADDED} has the entry {entry!r:.80}, which must be an object with "
                f"content (a string) and, each true or false, {', '.join(ADDED_FLAGS)}."
            )
    # The special tokens are always in the vocabulary.
    contents = [*SPECIAL_TOKENS, *(entry["content"] for entry in entries)]
    token, count = collections.Counter(contents).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{ADDED} repeats {token!r}; remove it there.")


def library_wordpiece(lines: list[str], config: JsonObject) -> HuggingFaceTokenizer:
    """Return the library's tokenizer of a vocabulary, without special tokens."""
    ids = {token: i for i, token in enumerate(lines)}
    limit = config.get(WORD_LIMIT, MAX_WORD_CHARACTERS)
    library = HuggingFaceTokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
    )
    library.normalizer = bert_normalizer(
        config["cased"], config.get(ACCENTS), config.get(CHINESE, True)
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


class WordPiece:
    def __init__(self, vocabulary: bytes, config: JsonObject) -> None:
        lines = _vocabulary_lines(vocabulary)
        added, pieces = added_tokens(config), set(lines)
        self.tokens = lines + [t.content for t in added if t.content not in pieces]
        self.num_pieces = len(lines)
        self.continuing = [token.startswith("##") for token in self.tokens]
        self._tokenizer = library_wordpiece(lines, config)
        # Added tokens that are not in the vocabulary get the ids after its last one.
        # Special tokens are not added, so "[MASK]" in a text is split at its brackets.
        self._tokenizer.add_tokens(added)

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def inside_word(self, token_id: int) -> int | None:
        return token_id  # [MASK] ends a word in BERT: a new word follows it

    def num_bytes(self, token: str) -> int:
        text = token.removeprefix("##") if token.startswith("##") else f" {token}"
        return len(text.encode())

    def decode(self, tokens: Iterable[str]) -> str:
        return " ".join(tokens).replace(" ##", "")


class SentencePiece:
    def __init__(self, model: bytes) -> None:
        import sentencepiece  # optional: not needed for WordPiece

        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            message = "is not a sentencepiece model; train one by `bert-jax vocab`."
            raise ValueError(message) from error
        self.num_pieces = len(self._processor)
        self.tokens = self._processor.id_to_piece(list(range(self.num_pieces)))
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        self.continuing = [
            not token.startswith(_WORD_START) and token not in SPECIAL_TOKENS
            for token in self.tokens
        ]

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        encoding = self._processor.encode(text, return_type="offset_mapping")
        return encoding["ids"], encoding["offsets"]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        return ids

    def inside_word(self, token_id: int) -> int | None:
        """Return the piece without the mark of a word start; None if it is the mark."""
        token = self.tokens[token_id]
        rest = token.removeprefix(_WORD_START)
        return self._ids.get(rest, token_id) if rest else None

    def num_bytes(self, token: str) -> int:
        if self._processor.is_byte(self._ids[token]):
            return 1
        return len(token.replace(_WORD_START, " ").encode())

    def decode(self, tokens: Iterable[str]) -> str:
        spaced = (f" {t} " if t in SPECIAL_TOKENS else t for t in tokens)
        return " ".join("".join(spaced).replace(_WORD_START, " ").split())


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

        Raises:
            ValueError: a field of `config` is missing or wrong; the vocabulary is
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
        self._backend: WordPiece | SentencePiece = (
            WordPiece(vocabulary, config)
            if self.kind == "wordpiece"
            else SentencePiece(vocabulary)
        )
        self.vocab_size = len(self._backend.tokens)
        self.num_pieces = self._backend.num_pieces
        """The number of tokens in the vocabulary file; added tokens follow them."""
        self.special_ids = _special_ids(self._backend.tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.special_ids[name] for name in SPECIAL_TOKENS
        )
        self.continues_word: Bool[np.ndarray, " V"] = np.array(self._backend.continuing)
        self.continues_word.flags.writeable = False
        self.num_bytes: Int32[np.ndarray, " V"] = np.array(
            [
                0 if token in SPECIAL_TOKENS else self._backend.num_bytes(token)
                for token in self._backend.tokens
            ],
            np.int32,
        )
        """The UTF-8 bytes that each token adds to a text, the space before a word
        included; 0 for special tokens."""
        self.num_bytes.flags.writeable = False

    def __repr__(self) -> str:
        case = "cased" if self.cased else "uncased"
        return f"Tokenizer({self.kind}, {self.vocab_size:,} tokens, {case})"

    @classmethod
    def load(cls, directory: epath.PathLike) -> "Tokenizer":
        """Load the tokenizer in `directory` or, if it has none, `directory/tokenizer`.

        Raises:
            FileNotFoundError: the directory or one of its two files is missing.
            ValueError: as for the constructor, with the file's path.
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
    def fingerprint(self) -> str:
        """The hexadecimal sha256 of the names and bytes of the tokenizer's files."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    def encode(self, text: str, mask_token: bool = False) -> Encoding:
        """Return the tokens of `text` with their offsets, without [CLS] and [SEP].

        Args:
            mask_token: encode each "[MASK]" in the text as the special token. If not
                set, it is plain text and never becomes a special id.
        """
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
        array, spans = np.array(ids, np.int32), np.array(offsets, np.int32)
        return Encoding(array, spans.reshape(-1, 2), self.continues_word[array])

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts; names of special tokens are plain text.

        WordPiece uses as many threads as `TOKENIZERS_PARALLELISM` and
        `RAYON_NUM_THREADS` allow; sentencepiece uses one.
        """
        return self._backend.encode_batch(texts)

    def decode(self, ids: Iterable[TokenId]) -> str:
        """Return readable text: normalized, with special tokens as their names."""
        return self._backend.decode(self.tokens(ids))

    def token(self, token_id: TokenId) -> str:
        """Return the vocabulary's entry for an id."""
        return self._backend.tokens[token_id]

    def tokens(self, ids: Iterable[TokenId]) -> list[str]:
        """Return the vocabulary's entries for some ids."""
        return [self._backend.tokens[i] for i in ids]


def vocabulary_file(kind: Kind) -> str:
    """Return the name of the file that holds a vocabulary of this kind."""
    return "vocab.txt" if kind == "wordpiece" else "tokenizer.model"


def _read_config(root: epath.Path) -> JsonObject:
    path = root / _CONFIG
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} is not a directory; `bert-jax vocab` makes a tokenizer."
        )
    content = '{"kind": "wordpiece", "cased": false} (or true)'
    _require_file(path, f"for a plain vocab.txt, write {content} into it")
    try:
        config = json.loads(path.read_bytes())
        if isinstance(config, dict) and "kind" not in config:
            if "tokenizer_class" in config or (root / "tokenizer.json").exists():
                raise ValueError(
                    f"{root} is a Hugging Face directory; run `bert-jax convert import "
                    f"{root} --from huggingface --output CKPT`, then name "
                    "CKPT/tokenizer."
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
    if ADDED in config:
        check_added(config[ADDED])
        if config["kind"] != "wordpiece":
            raise ValueError(f"only kind wordpiece has {ADDED}; remove it.")


def _vocabulary_lines(vocabulary: bytes) -> list[str]:
    """Return the entries of a vocab.txt."""
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
    ids = {token: i for i, token in enumerate(tokens)}
    if missing := [name for name in SPECIAL_TOKENS if name not in ids]:
        raise ValueError(
            f"lacks {', '.join(missing)}; a vocabulary must hold each of "
            f"{' '.join(SPECIAL_TOKENS)}."
        )
    return {name: ids[name] for name in SPECIAL_TOKENS}
