"""Text to ids and back: one Tokenizer for every kind of vocabulary."""

from bert_jax.tokenization.library_file import library_from_json as library_from_json
from bert_jax.tokenization.library_file import types_of as types_of
from bert_jax.tokenization.special_tokens import NAMES as NAMES
from bert_jax.tokenization.special_tokens import SEGMENTS as SEGMENTS
from bert_jax.tokenization.special_tokens import SEPARATORS as SEPARATORS
from bert_jax.tokenization.special_tokens import SPECIAL_TOKENS as SPECIAL_TOKENS
from bert_jax.tokenization.tokenizer import Encoding as Encoding
from bert_jax.tokenization.tokenizer import Tokenizer as Tokenizer
from bert_jax.tokenization.tokenizer import vocabulary_file as vocabulary_file
from bert_jax.tokenization.wordpiece import ACCENTS as ACCENTS
from bert_jax.tokenization.wordpiece import ADDED as ADDED
from bert_jax.tokenization.wordpiece import ADDED_FLAGS as ADDED_FLAGS
from bert_jax.tokenization.wordpiece import CHINESE as CHINESE
from bert_jax.tokenization.wordpiece import MAX_WORD_CHARACTERS as MAX_WORD_CHARACTERS
from bert_jax.tokenization.wordpiece import WORD_LIMIT as WORD_LIMIT
from bert_jax.tokenization.wordpiece import added_tokens as added_tokens
from bert_jax.tokenization.wordpiece import bert_normalizer as bert_normalizer
from bert_jax.tokenization.wordpiece import is_text as is_text
from bert_jax.tokenization.wordpiece import library_wordpiece as library_wordpiece
