"""Vocabularies by other libraries: any `tokenizer.json`, and sentencepiece's models.

A `tokenizer.json` of the library `tokenizers` is how the vocabularies of RoBERTa
(byte-level BPE) and XLM-R (unigram) are published. It is kept byte for byte, and the
library gives ids and offsets.
"""

import functools
import json
import re
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.storage.files import JsonObject
from bert_jax.tokenization.special_tokens import NAMES, SPECIAL_TOKENS

_BYTE_SPACES = ("\u0120", "\u010a", "\u0109")
"""How byte-level BPE writes a space, a line feed and a tab."""
_WORD_START = "\u2581"
"""The mark of the first piece of a word."""
_PREFIX = "continuing_subword_prefix"
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_NEVER_IN_TEXT = "\ufdd0"
"""A noncharacter of Unicode."""


def library_from_json(values: JsonObject) -> HuggingFaceTokenizer:
    """Return the library's tokenizer of the content of a tokenizer.json.

    Raise ValueError if the library refuses it, or if an id is larger than there are
    tokens: the library allocates every id up to the largest.
    """
    model, added = values.get("model"), values.get("added_tokens")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(ids, dict):
        most = len(ids) + (len(added) if isinstance(added, list) else 0)
        for token, i in ids.items():
            if type(i) is int and not 0 <= i < most:
                raise ValueError(f"gives {token!r:.80} the id {i} of {most} tokens.")
    try:
        return HuggingFaceTokenizer.from_str(json.dumps(values))
    except BaseException as error:  # the library also raises pyo3's PanicException
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"is no tokenizer: {error}; fetch it again.") from error


def types_of(part: object) -> list[str]:
    """Return the types of a component of a tokenizer.json, or of all in a sequence."""
    if not isinstance(part, dict):
        return []
    lists = (part.get(name) for name in ("normalizers", "pretokenizers", "processors"))
    inner = [item for items in lists if isinstance(items, list) for item in items]
    return [str(part.get("type")), *(kind for item in inner for kind in types_of(item))]


class LibraryFile:
    """The names of special tokens are plain text, as for every other vocabulary."""

    def __init__(self, content: bytes, config: JsonObject) -> None:
        try:
            values = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ValueError("is not JSON that can be read; fetch it again.") from error
        if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
            raise ValueError("has no model; fetch it again.")
        # Rows are padded and cut elsewhere.
        self._values = values | {"truncation": None, "padding": None}
        self._names: dict[str, str] = config[NAMES]
        self._library = library_from_json(_hide(self._values, self._names.values()))
        hidden = self._library.get_vocab(with_added_tokens=True)
        ids = {token.strip(_NEVER_IN_TEXT): i for token, i in hidden.items()}
        self.tokens = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in self.tokens] != list(range(len(ids))):
            raise ValueError("has ids with holes or repeats; they must count from 0.")
        self.num_pieces = len(self.tokens)
        steps = map(types_of, map(values.get, ("normalizer", "pre_tokenizer")))
        self.is_bytes = any("ByteLevel" in types for types in steps)
        """Whether the tokens are of bytes, the space before a word included."""
        limit = getattr(self._library.model, "max_input_chars_per_word", None)
        self.word_limit: int | None = limit
        added: list[JsonObject] = self._values.get("added_tokens") or []
        self._added = {str(entry.get("content")) for entry in added}
        model = self._values["model"]
        self.word_end: str = model.get("end_of_word_suffix") or ""
        """What ends the last token of a word, as "</w>"; then no token says whether it
        starts one."""
        prefix, is_words = model.get(_PREFIX) or "", model.get("type") == "WordLevel"
        starts = _BYTE_SPACES if self.is_bytes else (_WORD_START,)
        inside = [not token.startswith(starts) for token in self.tokens]
        if all(inside):  # no token says that it starts a word
            inside = [prefix != "" and t.startswith(prefix) for t in self.tokens]
        pairs = zip(self.tokens, inside, strict=True)
        # Added tokens never continue a word.
        self.continuing = [inner and t not in self._added for t, inner in pairs]
        self.marks_starts = any(self.continuing) or bool(prefix) or is_words

    def encode(
        self, text: str, mask_token: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids and offsets; with `mask_token`, its name is that token."""
        library = self._library_of_masks if mask_token else self._library
        encoding = library.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    @functools.cached_property
    def _library_of_masks(self) -> HuggingFaceTokenizer:
        hidden = set(self._names.values()) - {self._names["[MASK]"]}
        return library_from_json(_hide(self._values, hidden))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def num_bytes(self, token: str) -> int:
        if self.word_end and token.endswith(self.word_end):
            token = token.removesuffix(self.word_end) + " "
        if self.is_bytes and token not in self._added:
            return len(token)  # one character for each byte
        if _BYTE.fullmatch(token):
            return 1
        return len(token.replace(_WORD_START, " ").encode())

    def decode(self, tokens: Iterable[str]) -> str:
        decoder = self._library.decoder
        listed = list(tokens)
        return (decoder.decode(listed) if decoder else " ".join(listed)).strip()


def _hide(values: JsonObject, names: Iterable[str]) -> JsonObject:
    """Return a tokenizer.json with other names, which no text contains, for tokens.

    Their ids stay. The library would read "</s>" in a text as the special token, and
    its unigram model does so even for a token that is not an added one.
    """
    new = {name: f"{_NEVER_IN_TEXT}{name}{_NEVER_IN_TEXT}" for name in names}
    model = dict(values["model"])
    vocab = model.get("vocab")
    if isinstance(vocab, dict):
        model["vocab"] = {new.get(token, token): i for token, i in vocab.items()}
    elif isinstance(vocab, list):
        model["vocab"] = [[new.get(token, token), score] for token, score in vocab]
    if (unknown := model.get("unk_token")) in new:
        model["unk_token"] = new[unknown]
    added = [
        entry | {"content": new.get(entry["content"], entry["content"])}
        for entry in values.get("added_tokens") or []
    ]
    return values | {"model": model, "added_tokens": added}


class SentencePiece:
    """A unigram, BPE or character vocabulary that `bert-jax vocab` has learned."""

    word_limit: int | None = None
    marks_starts, word_end, is_bytes = True, "", False

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
