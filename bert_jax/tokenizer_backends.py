"""Text to ids by two libraries: `tokenizers` (WordPiece) and `sentencepiece`."""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

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
