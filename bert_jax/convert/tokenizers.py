"""Tokenizers from and to the files of Hugging Face.

Those say how a text is cleaned in `tokenizer_config.json`, in `tokenizer.json`, or in
both. What our Tokenizer cannot do is refused by name: a model that gets other ids than
it was trained with fails without a word.
"""

import itertools
import json
from typing import Any

from etils import epath
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.processors import TemplateProcessing

from bert_jax.tokenization import Tokenizer
from bert_jax.tokenizer_backends import (
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    bert_normalizer,
)

WORD_CHARACTERS = 100
"""The longest word of transformers' BertTokenizer, where no file says another."""

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_SINGLE = "[CLS]:0 $A:0 [SEP]:0"
_PAIR = f"{_SINGLE} $B:1 [SEP]:1"
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
    names = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    config, roles, added = (read_object(directory / name) for name in names)
    whole = read_object(directory / "tokenizer.json")
    path = directory / "vocab.txt"
    if not whole and not path.exists():
        raise FileNotFoundError(
            f"{directory} holds neither vocab.txt nor tokenizer.json; "
            "a WordPiece tokenizer needs one of them."
        )
    _check_config(config, directory / names[0])
    _check_roles(roles, directory / names[1])
    tokens, limit = None, WORD_CHARACTERS
    if whole:
        _check_whole(whole, directory / "tokenizer.json")
        tokens, limit = _read_model(whole["model"], directory / "tokenizer.json")
    lines = "".join(token + "\n" for token in tokens or []).encode()
    vocabulary = path.read_bytes() if path.exists() else lines
    cleaning = _cleaning(config, whole.get("normalizer"), directory)
    tokenizer = _tokenizer(cleaning, limit, vocabulary, directory)
    if tokens is not None:
        _check_same(tokenizer, tokens, directory)
    listed = config.get("added_tokens_decoder", {}).items()
    entries = [(entry["content"], int(i)) for i, entry in listed]
    entries += [
        (entry["content"], entry["id"]) for entry in whole.get("added_tokens", [])
    ]
    _check_added(tokenizer, [*added.items(), *entries], directory)
    return tokenizer


def read_object(path: epath.Path) -> dict[str, Any]:
    """The JSON object in a file, empty where there is no file; or a ValueError."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; fetch it again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object; fetch it again.")
    return content


def _check_whole(whole: dict[str, Any], path: epath.Path) -> None:
    """Refuse a tokenizer.json that is damaged or has other parts than BERT's."""
    try:
        HuggingFaceTokenizer.from_str(json.dumps(whole))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is no tokenizer: {error}; fetch it again.") from error
    _check_parts(whole, path)


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


def _check_parts(whole: dict[str, Any], path: epath.Path) -> None:
    parts = {
        name: whole.get(name) or {}
        for name in ("model", "normalizer", "pre_tokenizer", "post_processor")
    }
    # Old files do not name the model.
    model = "BPE" if "merges" in parts["model"] else "WordPiece"
    for part, field, default, only in (
        ("model", "type", model, "WordPiece"),
        ("model", "unk_token", None, "[UNK]"),
        ("model", "continuing_subword_prefix", None, "##"),
        ("normalizer", "type", None, "BertNormalizer"),
        ("normalizer", "clean_text", None, True),
        ("pre_tokenizer", "type", None, "BertPreTokenizer"),
    ):
        _require(path, f"{part}.{field}", parts[part].get(field, default), (only,))
    kinds = (None, "BertProcessing", "TemplateProcessing")
    kind = parts["post_processor"].get("type")
    _require(path, "post_processor.type", kind, kinds)
    if kind == "TemplateProcessing":
        for field, only in (("single", _SINGLE), ("pair", _PAIR)):
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
    for i, token in enumerate(tokens):
        if ids[token] != i:
            raise ValueError(
                f"{path}: {token!r} has the id {ids[token]} where {i} is due; "
                "ids must count from 0 without holes or repeats."
            )
    return tokens, model.get("max_input_chars_per_word", WORD_CHARACTERS)


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


def _tokenizer(
    cleaning: dict[str, bool], limit: int, vocabulary: bytes, directory: epath.Path
) -> Tokenizer:
    cased = not cleaning["do_lower_case"]
    # Stored only where it is not what follows from the casing.
    usual = {"strip_accents": not cased, "tokenize_chinese_chars": True}
    departs = {k: cleaning[k] for k, v in usual.items() if cleaning.get(k, v) != v}
    config = {"kind": "wordpiece", "cased": cased, "max_input_chars_per_word": limit}
    try:
        return Tokenizer(config | departs, vocabulary)
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


def _check_added(
    tokenizer: Tokenizer, entries: list[tuple[str, int]], path: epath.Path
) -> None:
    for token, i in entries:
        if tokenizer.special_ids.get(token) != i:
            raise ValueError(
                f"{path}: the added token {token!r} of id {i} is not one of "
                f"{' '.join(SPECIAL_TOKENS)} with its id in the vocabulary; "
                "a tokenizer with others cannot be imported."
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
    ids = {tokenizer.token(i): i for i in range(tokenizer.vocab_size)}
    limit = config.get("max_input_chars_per_word", MAX_WORD_CHARACTERS)
    whole = HuggingFaceTokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=limit)
    )
    accents, chinese = config.get("strip_accents"), config.get("tokenize_chinese_chars")
    whole.normalizer = bert_normalizer(tokenizer.cased, accents, chinese is not False)
    whole.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    whole.decoder = decoders.WordPiece(prefix="##")
    whole.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    whole.post_processor = template(tokenizer)
    return whole


def template(tokenizer: Tokenizer) -> TemplateProcessing:
    """[CLS] … [SEP], with segments."""
    special = [(name, tokenizer.special_ids[name]) for name in ("[CLS]", "[SEP]")]
    return TemplateProcessing(single=_SINGLE, pair=_PAIR, special_tokens=special)
