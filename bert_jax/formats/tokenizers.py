"""Tokenizers from the files of Hugging Face.

Those say how a text is cleaned in `tokenizer_config.json`, in `tokenizer.json`, or in
both. What our Tokenizer cannot do is refused by name: a model that gets other ids than
it was trained with fails without a word.
"""

import itertools
import json
from typing import Any

from etils import epath
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.formats.added_tokens import added_tokens
from bert_jax.formats.model_files import read_file, read_object
from bert_jax.tokenization import ADDED, SPECIAL_TOKENS, WORD_LIMIT, Tokenizer

WORD_CHARACTERS = 100
"""The longest word of transformers' BertTokenizer, where no file says another."""

CONFIG, WHOLE = "tokenizer_config.json", "tokenizer.json"
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
SINGLE = "[CLS]:0 $A:0 [SEP]:0"
PAIR = f"{SINGLE} $B:1 [SEP]:1"
_CLASSES = [
    f"{name}Tokenizer{ending}"
    for name in ("Bert", "DistilBert", "Electra", "MobileBert", "PreTrained")
    for ending in ("", "Fast")
] + ["TokenizersBackend"]


def from_huggingface(directory: epath.Path) -> Tokenizer:
    """The WordPiece tokenizer of a model's directory, with its own word limit.

    Raises:
        FileNotFoundError: it holds neither `vocab.txt` nor `tokenizer.json`.
        ValueError: two files disagree; the casing stands nowhere; a setting, a model
            type or a special token is one that our Tokenizer does not have.
    """
    names = (CONFIG, "special_tokens_map.json", "added_tokens.json")
    config, roles, added = (read_or_empty(directory / name) for name in names)
    whole = read_or_empty(directory / WHOLE)
    path = directory / "vocab.txt"
    if not whole and not path.exists():
        raise FileNotFoundError(
            f"{directory} holds neither vocab.txt nor tokenizer.json; "
            "a WordPiece tokenizer needs one of them."
        )
    _check_config(config, directory / names[0])
    _check_roles(roles, directory / names[1])
    tokens, limit, normalizer = None, WORD_CHARACTERS, {}
    if whole:
        normalizer = _check_whole(whole, directory / WHOLE)
        tokens, limit = _read_model(whole["model"], directory / WHOLE)
    lines = "".join(token + "\n" for token in tokens or []).encode()
    vocabulary = read_file(path) if path.exists() else lines
    cleaning = _cleaning(config, normalizer, directory)
    settings = _settings(cleaning, limit)
    tokenizer = _tokenizer(settings, vocabulary, directory)
    if tokens is not None:
        _check_same(tokenizer, tokens, directory)
    contents = (whole, config, roles, added)
    paths = (directory / name for name in (WHOLE, *names))
    more = added_tokens(tokenizer, dict(zip(paths, contents, strict=True)))
    if more:
        tokenizer = _tokenizer(settings | {ADDED: more}, vocabulary, directory)
    return tokenizer


def read_or_empty(path: epath.Path) -> dict[str, Any]:
    """The JSON object in a file, empty where there is no file; or a ValueError."""
    return read_object(path) if path.exists() else {}


def library_tokenizer(whole: dict[str, Any], path: epath.Path) -> HuggingFaceTokenizer:
    """What the library makes of the content of a tokenizer.json, or a ValueError."""
    _check_ids(whole, path)
    try:
        return HuggingFaceTokenizer.from_str(json.dumps(whole))
    except BaseException as error:  # what the library raises has no common class
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"{path} is no tokenizer: {error}; fetch it again.") from error


def _check_ids(whole: dict[str, Any], path: epath.Path) -> None:
    """Refuse ids with holes: the library lists every number up to the largest."""
    model = whole.get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        return  # the library refuses it, or it is a list of a unigram's
    for due, token in enumerate(sorted(ids, key=ids.__getitem__)):
        if ids[token] != due:
            raise ValueError(
                f"{path}: {token!r} has the id {str(ids[token])[:40]} where {due} is "
                "due; ids must count from 0 without holes or repeats."
            )


def _check_whole(whole: dict[str, Any], path: epath.Path) -> dict[str, Any]:
    """The normalizer of a tokenizer.json, which must be whole and have BERT's parts."""
    # As the library writes it, every part is an object.
    content = library_tokenizer(whole, path).to_str()
    parts = {name: part or {} for name, part in json.loads(content).items()}
    _check_parts(parts, path)
    if not isinstance(whole["model"], dict):
        raise ValueError(f"{path}: the model must be an object; fetch the file again.")
    return parts["normalizer"]


def _check_config(config: dict[str, Any], path: epath.Path) -> None:
    _check_roles(config, path)
    name = config.get("tokenizer_class")
    if name not in (None, *_CLASSES):
        raise ValueError(
            f"{path}: tokenizer_class={name!r} is not one of BERT's WordPiece; "
            f"only {', '.join(_CLASSES)} can be imported."
        )
    for name, only in (("do_basic_tokenize", (True,)), ("never_split", ([],))):
        _require(path, name, config.get(name), (None, *only))
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        _require(path, name, config.get(name), (None, False, True))


def _check_roles(config: dict[str, Any], path: epath.Path) -> None:
    for role, name in zip(ROLES, SPECIAL_TOKENS, strict=True):
        said = config.get(role)
        said = said.get("content") if isinstance(said, dict) else said
        _require(path, role, said, (None, name))


def _require(path: epath.Path, name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Refuse `value` unless it is one of `allowed`; None in there is "not said"."""
    if not any(type(value) is type(only) and value == only for only in allowed):
        options = " or ".join(json.dumps(v) for v in allowed if v is not None)
        raise ValueError(
            f"{path}: {name}={value!r} must be {options}; "
            "a tokenizer that does otherwise cannot be imported."
        )


def _check_parts(parts: dict[str, Any], path: epath.Path) -> None:
    for part, field, only in (
        ("model", "type", "WordPiece"),
        ("model", "unk_token", "[UNK]"),
        ("model", "continuing_subword_prefix", "##"),
        ("normalizer", "type", "BertNormalizer"),
        ("normalizer", "clean_text", True),
        ("pre_tokenizer", "type", "BertPreTokenizer"),
    ):
        _require(path, f"{part}.{field}", parts[part].get(field), (only,))
    kinds = (None, "BertProcessing", "TemplateProcessing")
    kind = parts["post_processor"].get("type")
    _require(path, "post_processor.type", kind, kinds)
    if kind == "TemplateProcessing":
        for field, only in (("single", SINGLE), ("pair", PAIR)):
            shown = _template(parts["post_processor"][field])
            _require(path, f"post_processor.{field}", shown, (only,))


def _template(items: list[dict[str, Any]]) -> str:
    """A template as TemplateProcessing takes it."""
    return " ".join(
        f"{'$' * (kind == 'Sequence')}{part['id']}:{part['type_id']}"
        for item in items
        for kind, part in item.items()
    )


def _read_model(model: dict[str, Any], path: epath.Path) -> tuple[list[str], int]:
    """The tokens in the order of their ids, and the longest word."""
    ids = model["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    return tokens, model.get(WORD_LIMIT, WORD_CHARACTERS)


def _cleaning(
    config: dict[str, Any], normalizer: dict[str, Any] | None, directory: epath.Path
) -> dict[str, bool]:
    """What both files say of case, accents and Chinese, if they say the same."""
    names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
    said = {name: config[name] for name in names if config.get(name) is not None}
    stated: dict[str, bool] = {}
    if normalizer:
        lower, accents = normalizer["lowercase"], normalizer.get("strip_accents")
        accents = lower if accents is None else accents
        values = lower, accents, normalizer["handle_chinese_chars"]
        stated = dict(zip(names, values, strict=True))
    if "do_lower_case" in said:
        # So does transformers' BertTokenizer, whatever tokenizer.json says.
        usual = {"strip_accents": said["do_lower_case"], "tokenize_chinese_chars": True}
        said = {**usual, **said}
    for name in names:
        if name in stated and stated[name] != said.get(name, stated[name]):
            raise ValueError(
                f"{directory}: tokenizer.json has {name}={stated[name]} and "
                f"tokenizer_config.json {name}={said[name]}; make them the same."
            )
    if "do_lower_case" not in {**stated, **said}:
        raise ValueError(
            f"{directory} does not say whether its vocabulary is cased; write "
            '{"do_lower_case": true} into its tokenizer_config.json, or false.'
        )
    return {**stated, **said}


def _settings(cleaning: dict[str, bool], limit: int) -> dict[str, Any]:
    """What our Tokenizer's configuration holds."""
    cased = not cleaning["do_lower_case"]
    # Stored only where it is not what follows from the casing.
    usual = {"strip_accents": not cased, "tokenize_chinese_chars": True}
    departs = {k: cleaning[k] for k, v in usual.items() if cleaning.get(k, v) != v}
    return {"kind": "wordpiece", "cased": cased, WORD_LIMIT: limit} | departs


def _tokenizer(
    settings: dict[str, Any], vocabulary: bytes, directory: epath.Path
) -> Tokenizer:
    try:
        return Tokenizer(settings, vocabulary)
    except ValueError as error:
        raise ValueError(f"{directory}, vocabulary: {error}") from error


def _check_same(tokenizer: Tokenizer, tokens: list[str], path: epath.Path) -> None:
    read = tokenizer.tokens(range(tokenizer.vocab_size))
    for i, (text, whole) in enumerate(itertools.zip_longest(read, tokens)):
        if text != whole:
            raise ValueError(
                f"{path}: id {i} is {text!r} in vocab.txt and {whole!r} in "
                "tokenizer.json; remove the file that the model was not trained with."
            )
