"""A WordPiece tokenizer as transformers reads it."""

import json

from etils import epath
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing

from bert_jax.formats.tokenizers import PAIR, ROLES, SINGLE, WORD_CHARACTERS
from bert_jax.tokenization import (
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    Tokenizer,
    added_tokens,
    bert_normalizer,
)


def to_huggingface(
    tokenizer: Tokenizer, directory: epath.Path, model_max_length: int
) -> list[str]:
    """Write a WordPiece tokenizer as transformers reads it; gives the files' names.

    Texts get our ids between [CLS] and [SEP], but for the special tokens' own names,
    which there are always the tokens themselves.
    """
    assert tokenizer.kind == "wordpiece"  # sentencepiece_files.py has the others
    whole = _whole(tokenizer)
    limit = whole.model.max_input_chars_per_word
    # BertTokenizer of transformers 5 forgets a limit other than its own.
    bert = limit == WORD_CHARACTERS
    config = {
        "tokenizer_class": "BertTokenizer" if bert else "PreTrainedTokenizerFast",
        "do_lower_case": not tokenizer.cased,
        "strip_accents": whole.normalizer.strip_accents,
        "tokenize_chinese_chars": whole.normalizer.handle_chinese_chars,
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **dict(zip(ROLES, SPECIAL_TOKENS, strict=True)),
    }
    files = {
        "vocab.txt": tokenizer.files["vocab.txt"],
        "tokenizer.json": whole.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
    }
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return list(files)


def _whole(tokenizer: Tokenizer) -> HuggingFaceTokenizer:
    """Everything that a tokenizer.json holds."""
    config = tokenizer.config
    ids = {tokenizer.token(i): i for i in range(tokenizer.num_pieces)}
    limit = config.get("max_input_chars_per_word", MAX_WORD_CHARACTERS)
    whole = HuggingFaceTokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
    )
    accents, chinese = config.get("strip_accents"), config.get("tokenize_chinese_chars")
    whole.normalizer = bert_normalizer(tokenizer.cased, accents, chinese is not False)
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    whole.decoder = decoders.WordPiece(prefix="##")
    whole.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    for token in added_tokens(config):
        (whole.add_special_tokens if token.special else whole.add_tokens)([token])
    whole.post_processor = template(tokenizer)
    return whole


def template(tokenizer: Tokenizer) -> TemplateProcessing:
    """[CLS] … [SEP], with segments."""
    special = [(name, tokenizer.special_ids[name]) for name in ("[CLS]", "[SEP]")]
    return TemplateProcessing(single=SINGLE, pair=PAIR, special_tokens=special)
