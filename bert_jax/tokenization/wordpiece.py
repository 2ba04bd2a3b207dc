"""WordPiece, by the library `tokenizers`: a vocab.txt and how texts are cleaned."""

import collections
from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.storage.files import JsonObject
from bert_jax.tokenization.special_tokens import SPECIAL_TOKENS

MAX_WORD_CHARACTERS = 200
"""Longer words are [UNK], as in the 2018 code (100 in Hugging Face's files)."""
WORD_LIMIT = "max_input_chars_per_word"
ACCENTS, CHINESE = "strip_accents", "tokenize_chinese_chars"
"""Optional keys of a WordPiece tokenizer's configuration, named as in Hugging Face."""
ADDED = "added_tokens"
"""Key of the tokens that are matched in a text before it is split into words."""
ADDED_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""Flags that control how an added token is matched, as in a `tokenizer.json`."""


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
    marks_starts, word_end, is_bytes = True, "", False

    def __init__(self, vocabulary: bytes, config: JsonObject) -> None:
        lines = _vocabulary_lines(vocabulary)
        added, pieces = added_tokens(config), set(lines)
        self.tokens = lines + [t.content for t in added if t.content not in pieces]
        self.num_pieces = len(lines)
        self.continuing = [token.startswith("##") for token in self.tokens]
        self.word_limit: int | None = config.get(WORD_LIMIT, MAX_WORD_CHARACTERS)
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


def _renaming(line: int) -> str:
    return (
        f"put a token that does not occur, such as [unused-{line}], on line {line}: "
        "without it, each later token would have another id."
    )


def _vocabulary_lines(vocabulary: bytes) -> list[str]:
    # Not splitlines: a token may be one of the rarer line breaks.
    text = vocabulary.decode().removeprefix("\ufeff")  # as editors may begin a file
    lines = text.removesuffix("\n").split("\n")
    tokens = [line.removesuffix("\r") for line in lines]
    for number, token in enumerate(tokens, 1):
        if not token.strip(" \t"):  # rarer white space may be a token
            is_last = not "".join(tokens[number:]).strip()
            remedy = "drop it." if is_last else _renaming(number)
            raise ValueError(
                f"line {number} is blank; each line must hold one token: {remedy}"
            )
    token, count = collections.Counter(tokens).most_common(1)[0]
    if count > 1:
        first, second = [n for n, t in enumerate(tokens, 1) if t == token][:2]
        raise ValueError(
            f"line {second} repeats {token!r} of line {first}; keep one: "
            f"{_renaming(first)}"
        )
    return tokens
