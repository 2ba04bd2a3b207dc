"""Text to ids and back: one Tokenizer for every kind of vocabulary."""

from bert_jax.tokenization.special_tokens import SPECIAL_TOKENS as SPECIAL_TOKENS
from bert_jax.tokenization.tokenizer import Encoding as Encoding
from bert_jax.tokenization.tokenizer import Tokenizer as Tokenizer
from bert_jax.tokenization.tokenizer import vocabulary_file as vocabulary_file
from bert_jax.tokenization.wordpiece import MAX_WORD_CHARACTERS as MAX_WORD_CHARACTERS
from bert_jax.tokenization.wordpiece import bert_normalizer as bert_normalizer
