"""Text to ids and back: one Tokenizer for every kind of vocabulary."""

from bert_jax.tokenization.library_file import library_from_json, types_of
from bert_jax.tokenization.special_tokens import (
    NAMES,
    SEGMENTS,
    SEPARATORS,
    SPECIAL_TOKENS,
)
from bert_jax.tokenization.tokenizer import (
    Encoding,
    Kind,
    TokenId,
    Tokenizer,
    vocabulary_file,
)
from bert_jax.tokenization.wordpiece import (
    ACCENTS,
    ADDED,
    ADDED_FLAGS,
    CHINESE,
    MAX_WORD_CHARACTERS,
    WORD_LIMIT,
    added_tokens,
    bert_normalizer,
    is_text,
    library_wordpiece,
)

__all__ = [
    "ACCENTS",
    "ADDED",
    "ADDED_FLAGS",
    "CHINESE",
    "MAX_WORD_CHARACTERS",
    "NAMES",
    "SEGMENTS",
    "SEPARATORS",
    "SPECIAL_TOKENS",
    "WORD_LIMIT",
    "Encoding",
    "Kind",
    "TokenId",
    "Tokenizer",
    "added_tokens",
    "bert_normalizer",
    "is_text",
    "library_from_json",
    "library_wordpiece",
    "types_of",
    "vocabulary_file",
]
