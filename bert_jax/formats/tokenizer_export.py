"""Write a WordPiece tokenizer for transformers."""

from etils import epath
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing

from bert_jax.formats.tokenizers import (
    CONFIG,
    PAIR,
    ROLES,
    SINGLE,
    TOKENIZER_JSON,
    WORD_CHARACTERS,
)
from bert_jax.storage.files import JsonObject, write_json
from bert_jax.tokenization import (
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    WORD_LIMIT,
    Tokenizer,
    added_tokens,
    bert_normalizer,
    vocabulary_file,
)


def to_huggingface(
    tokenizer: Tokenizer, directory: epath.Path, model_max_length: int
) -> None:
    """Write a WordPiece tokenizer as transformers reads it.

    transformers gives our ids, between [CLS] and [SEP]. The one difference: it reads
    the name of a special token in a text as that token.
    """
    assert tokenizer.kind == "wordpiece"  # sentencepiece_files.py writes the others
    library = _build(tokenizer)
    # BertTokenizer of transformers 5 ignores a limit other than its own.
    is_bert = library.model.max_input_chars_per_word == WORD_CHARACTERS
    config = {
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": not tokenizer.cased,
        "strip_accents": library.normalizer.strip_accents,
        "tokenize_chinese_chars": library.normalizer.handle_chinese_chars,
    }
    content = library.to_str(pretty=True)
    write_files(tokenizer, content, config, model_max_length, directory)


def write_files(
    tokenizer: Tokenizer,
    content: str,
    config: JsonObject,
    model_max_length: int,
    directory: epath.Path,
) -> None:
    """Write the vocabulary, tokenizer.json and tokenizer_config.json.

    Args:
        content: the content of tokenizer.json.
        config: the keys of tokenizer_config.json that not every tokenizer has.
    """
    config |= {
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **dict(zip(ROLES, SPECIAL_TOKENS, strict=True)),
    }
    name = vocabulary_file(tokenizer.kind)
    (directory / name).write_bytes(tokenizer.files[name])
    (directory / TOKENIZER_JSON).write_bytes(content.encode())
    write_json(config, directory / CONFIG)


def _build(tokenizer: Tokenizer) -> HuggingFaceTokenizer:
    """Return the library's tokenizer with the same vocabulary and settings."""
    config = tokenizer.config
    ids = {tokenizer.token(i): i for i in range(tokenizer.num_pieces)}
    limit = config.get(WORD_LIMIT, MAX_WORD_CHARACTERS)
    library = HuggingFaceTokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
    )
    accents, chinese = config.get("strip_accents"), config.get("tokenize_chinese_chars")
    library.normalizer = bert_normalizer(tokenizer.cased, accents, chinese is not False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    library.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    for token in added_tokens(config):
        (library.add_special_tokens if token.special else library.add_tokens)([token])
    library.post_processor = template(tokenizer)
    return library


def template(tokenizer: Tokenizer) -> TemplateProcessing:
    """Return the template [CLS] … [SEP], with segment ids."""
    special = [(name, tokenizer.special_ids[name]) for name in ("[CLS]", "[SEP]")]
    return TemplateProcessing(single=SINGLE, pair=PAIR, special_tokens=special)
