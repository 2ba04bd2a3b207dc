"""Read the tokenizers in files of Hugging Face, and write WordPiece tokenizers.

The files specify the cleaning of texts in `tokenizer_config.json`, in `tokenizer.json`,
or in both. A setting that our Tokenizer does not support is an error: a model whose
inputs have other ids than in training fails silently. Where texts are cut off, which
concerns only long ones, is a warning.
"""

import itertools
import json
import warnings
from typing import Any

from etils import epath
from tokenizers import AddedToken, decoders
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing

from bert_jax.config.checks import quoted
from bert_jax.formats.added_tokens import read_added_tokens
from bert_jax.formats.model_files import read_file, read_object_or_empty
from bert_jax.formats.tokenizer_json import (
    KEY_OF_ROLE,
    TOKENIZER_JSON,
    has_segment_input,
    is_wordpiece,
    read_tokenizer_json,
    write_files,
)
from bert_jax.storage.files import JsonObject, located
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer
from bert_jax.tokenization.library_file import library_from_json
from bert_jax.tokenization.special_tokens import SEGMENTS
from bert_jax.tokenization.wordpiece import (
    ADDED,
    WORD_LIMIT,
    added_tokens,
    library_wordpiece,
)

WORD_CHARACTERS = 100
"""The longest word of transformers' BertTokenizer, unless a file has another limit."""

CONFIG = "tokenizer_config.json"
SETTINGS_FILES = (
    TOKENIZER_JSON,
    CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
)
"""The files beside a vocabulary that an import reads, if they are there."""
SINGLE = "[CLS]:0 $A:0 [SEP]:0"
PAIR = f"{SINGLE} $B:1 [SEP]:1"
_CLASSES = [
    f"{name}Tokenizer{ending}"
    for name in ("Bert", "DistilBert", "Electra", "MobileBert", "PreTrained")
    for ending in ("", "Fast")
] + ["TokenizersBackend"]


def from_huggingface(directory: epath.Path) -> Tokenizer:
    """Return the tokenizer of a model's directory.

    WordPiece keeps the model's limit of a word's length; other kinds are read from
    `tokenizer.json`. Raise FileNotFoundError if there is neither `vocab.txt` nor that,
    or ValueError if two files disagree, no file says whether the vocabulary is cased,
    or a setting, a model type or a special token is not supported.
    """
    paths = [directory / name for name in SETTINGS_FILES]
    files = {path: read_object_or_empty(path) for path in paths}
    content, config, roles, _ = files.values()
    json_path, config_path, roles_path, _ = files
    path = directory / "vocab.txt"
    if not content and not path.exists():
        raise FileNotFoundError(
            f"{directory} holds neither tokenizer.json nor vocab.txt; if the model has "
            "vocab.json and merges.txt, or a sentencepiece model, transformers makes "
            "tokenizer.json of them: AutoTokenizer.from_pretrained(SOURCE)"
            ".save_pretrained(COPY), where COPY is a directory with the other files."
        )
    _warn_of_truncation(content, config, directory)
    if content and not is_wordpiece(content, (config, roles)):
        return read_tokenizer_json(directory, content, (config, roles))
    _check_config(config, config_path)
    _check_roles(roles, roles_path)
    tokens, limit, normalizer = None, WORD_CHARACTERS, {}
    if content:
        normalizer = _check_tokenizer_json(content, json_path)
        ids = content["model"]["vocab"]
        tokens = sorted(ids, key=ids.__getitem__)
        limit = content["model"].get(WORD_LIMIT, WORD_CHARACTERS)
    lines = "".join(token + "\n" for token in tokens or []).encode()
    vocabulary = read_file(path) if path.exists() else lines
    settings = _settings(config, normalizer, limit, directory)
    if not has_segment_input([config]):
        settings |= {SEGMENTS: False}
    place = f"{directory}, vocabulary"
    with located(place):
        tokenizer = Tokenizer(settings, vocabulary)
    if tokens is not None:
        _check_same_tokens(tokenizer, tokens, directory)
    if added := read_added_tokens(tokenizer, files):
        with located(place):
            tokenizer = Tokenizer(settings | {ADDED: added}, vocabulary)
    return tokenizer


def _warn_of_truncation(
    content: JsonObject, config: JsonObject, directory: epath.Path
) -> None:
    """Warn if files say to cut long texts at their beginning."""
    cut = content.get("truncation")
    side = cut.get("direction") if isinstance(cut, dict) else None
    if (side := config.get("truncation_side") or side) not in (None, "right", "Right"):
        warnings.warn(
            f"{directory}: truncation_side={quoted(side)}, but bert_jax cuts a long "
            "text at its end; shorten such texts before.",
            stacklevel=2,
        )


def library_tokenizer(content: JsonObject, path: epath.Path) -> HuggingFaceTokenizer:
    """Return the library's tokenizer of a tokenizer.json.

    Raise ValueError if the library refuses it, or its ids have holes.
    """
    model = content.get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    # Else the library refuses it, or it is the list of a unigram model.
    if isinstance(ids, dict) and all(type(i) is int for i in ids.values()):
        for expected, token in enumerate(sorted(ids, key=ids.__getitem__)):
            if ids[token] != expected:
                raise ValueError(
                    f"{path}: {token!r} has the id {str(ids[token])[:40]} instead of "
                    f"{expected}; ids must count from 0 without holes or repeats."
                )
    try:
        return library_from_json(content)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def _check_tokenizer_json(content: JsonObject, path: epath.Path) -> JsonObject:
    """Check that a tokenizer.json has BERT's components; return its normalizer."""
    # The library writes every component as an object, where old files may lack it.
    written = json.loads(library_tokenizer(content, path).to_str())
    parts = {name: part or {} for name, part in written.items()}
    for part, field, value in (
        ("model", "type", "WordPiece"),
        ("model", "unk_token", "[UNK]"),
        ("model", "continuing_subword_prefix", "##"),
        ("normalizer", "type", "BertNormalizer"),
        ("normalizer", "clean_text", True),
        ("pre_tokenizer", "type", "BertPreTokenizer"),
    ):
        _require(path, f"{part}.{field}", parts[part].get(field), (value,))
    kinds = (None, "BertProcessing", "TemplateProcessing")
    kind = parts["post_processor"].get("type")
    _require(path, "post_processor.type", kind, kinds)
    if kind == "TemplateProcessing":
        for field, expected in (("single", SINGLE), ("pair", PAIR)):
            value = " ".join(
                f"{'$' * (name == 'Sequence')}{part['id']}:{part['type_id']}"
                for item in parts["post_processor"][field]
                for name, part in item.items()
            )
            _require(path, f"post_processor.{field}", value, (expected,))
    if not isinstance(content["model"], dict):
        raise ValueError(f"{path}: the model must be an object; fetch the file again.")
    return parts["normalizer"]


def _check_config(config: JsonObject, path: epath.Path) -> None:
    _check_roles(config, path)
    name = config.get("tokenizer_class")
    if name not in (None, *_CLASSES):
        raise ValueError(
            f"{path}: tokenizer_class={name!r} is not one of BERT's WordPiece; "
            f"only {', '.join(_CLASSES)} can be imported."
        )
    _require(path, "do_basic_tokenize", config.get("do_basic_tokenize"), (None, True))
    _require(path, "never_split", config.get("never_split"), (None, []))
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        _require(path, name, config.get(name), (None, False, True))


def _check_roles(config: JsonObject, path: epath.Path) -> None:
    for name, role in KEY_OF_ROLE.items():
        token = config.get(role)
        token = token.get("content") if isinstance(token, dict) else token
        _require(path, role, token, (None, name))


def _require(path: epath.Path, name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ValueError unless `value` is one of `allowed`; None there means absent."""
    if not any(type(value) is type(other) and value == other for other in allowed):
        options = " or ".join(json.dumps(v) for v in allowed if v is not None)
        raise ValueError(
            f"{path}: {name}={value!r} must be {options}; "
            "a tokenizer with another value cannot be imported."
        )


def _settings(
    config: JsonObject, normalizer: JsonObject, limit: int, directory: epath.Path
) -> JsonObject:
    """Return the configuration of our Tokenizer; both files must agree on it."""
    names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
    configured = {name: config[name] for name in names if config.get(name) is not None}
    cleaning: dict[str, bool] = {}
    if normalizer:
        lower, accents = normalizer["lowercase"], normalizer.get("strip_accents")
        accents = lower if accents is None else accents
        values = lower, accents, normalizer["handle_chinese_chars"]
        cleaning = dict(zip(names, values, strict=True))
    if "do_lower_case" in configured:
        # transformers' BertTokenizer has these defaults, whatever tokenizer.json says.
        lower = configured["do_lower_case"]
        defaults = {"strip_accents": lower, "tokenize_chinese_chars": True}
        configured = defaults | configured
    for name, value in cleaning.items():
        if (other := configured.get(name, value)) != value:
            raise ValueError(
                f"{directory}: tokenizer.json has {name}={value} and "
                f"tokenizer_config.json {name}={other}; make them the same."
            )
    cleaning |= configured
    if "do_lower_case" not in cleaning:
        raise ValueError(
            f"{directory} does not say whether its vocabulary is cased; write "
            '{"do_lower_case": true} into its tokenizer_config.json, or false.'
        )
    cased = not cleaning["do_lower_case"]
    # Values that follow from the casing are left out.
    defaults = {"strip_accents": not cased, "tokenize_chinese_chars": True}
    others = {k: cleaning[k] for k, v in defaults.items() if cleaning.get(k, v) != v}
    return {"kind": "wordpiece", "cased": cased, WORD_LIMIT: limit} | others


def _check_same_tokens(
    tokenizer: Tokenizer, tokens: list[str], path: epath.Path
) -> None:
    ours = tokenizer.tokens(range(tokenizer.vocab_size))
    for i, (token, other) in enumerate(itertools.zip_longest(ours, tokens)):
        if token != other:
            raise ValueError(
                f"{path}: id {i} is {token!r} in vocab.txt and {other!r} in "
                "tokenizer.json; remove the file that the model was not trained with."
            )


def to_huggingface(
    tokenizer: Tokenizer, directory: epath.Path, limits: JsonObject
) -> None:
    """Write a WordPiece tokenizer as transformers reads it.

    transformers gives our ids, between [CLS] and [SEP]. The one difference: it reads
    the name of a special token in a text as that token.
    """
    assert tokenizer.kind == "wordpiece"  # sentencepiece_files.py writes the others
    pieces = tokenizer.tokens(range(tokenizer.num_pieces))
    library = library_wordpiece(pieces, tokenizer.config)
    library.decoder = decoders.WordPiece(prefix="##")
    special = [AddedToken(token, special=True) for token in SPECIAL_TOKENS]
    for token in special + added_tokens(tokenizer.config):
        (library.add_special_tokens if token.special else library.add_tokens)([token])
    library.post_processor = template(tokenizer)
    # BertTokenizer of transformers 5 ignores a limit other than its own.
    is_bert = library.model.max_input_chars_per_word == WORD_CHARACTERS
    config = {
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": not tokenizer.cased,
        "strip_accents": library.normalizer.strip_accents,
        "tokenize_chinese_chars": library.normalizer.handle_chinese_chars,
    }
    content = library.to_str(pretty=True).encode()
    write_files(tokenizer, content, config | limits, directory)


def template(tokenizer: Tokenizer) -> TemplateProcessing:
    """Return the template [CLS] … [SEP], with segment ids."""
    special = [(name, tokenizer.special_ids[name]) for name in ("[CLS]", "[SEP]")]
    return TemplateProcessing(single=SINGLE, pair=PAIR, special_tokens=special)
