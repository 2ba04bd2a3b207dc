"""Read and write tokenizers of Hugging Face's library other than BERT's WordPiece.

`tokenizer.json` says everything but the roles of the special tokens. These are in
`tokenizer_config.json` or `special_tokens_map.json`, follow from the template of a row,
or have the default names of transformers' classes, as in the first released RoBERTa.
RoBERTa's and XLM-R's templates have two separators between texts, and no segments.
"""

from collections.abc import Container, Iterable

from etils import epath

from bert_jax.formats.model_files import read_file
from bert_jax.storage.files import JsonObject, located, write_json
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer, vocabulary_file
from bert_jax.tokenization.library_file import library_from_json, types_of
from bert_jax.tokenization.special_tokens import NAMES, SEGMENTS, SEPARATORS

KEY_OF_ROLE = {role: f"{role[1:-1].lower()}_token" for role in SPECIAL_TOKENS}
"""The keys pad_token, unk_token, cls_token, sep_token and mask_token."""
_ROBERTA_NAMES = dict(
    zip(KEY_OF_ROLE, "<pad> <unk> <s> </s> <mask>".split(), strict=True)
)
"""The name of each role's token in RoBERTa's class of transformers."""
TOKENIZER_JSON = "tokenizer.json"
FAST: JsonObject = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "clean_up_tokenization_spaces": False,
}
"""The class of transformers that reads any tokenizer.json, and its setting."""
_TEMPLATES = ("TemplateProcessing", "RobertaProcessing", "BertProcessing")
# (separators between two texts, whether the second has segment 1), by its template
_PAIRS = {
    "c:0 A:0 s:0 B:1 s:1": (1, True),
    "c:0 A:0 s:0 B:0 s:0": (1, False),
    "c:0 A:0 s:0 s:0 B:1 s:1": (2, True),
    "c:0 A:0 s:0 s:0 B:0 s:0": (2, False),
}


def read_tokenizer_json(
    directory: epath.Path, content: JsonObject, settings: Iterable[JsonObject]
) -> Tokenizer:
    """Return the tokenizer of a directory's tokenizer.json, which is kept as it is.

    Raise ValueError if the library refuses its `content`, it has no template of BERT's
    kind, two files disagree, or nothing says which token has a role. `settings` are the
    objects in the files that may name the special tokens, in order.
    """
    path = directory / TOKENIZER_JSON
    with located(path):
        library = library_from_json(content)
        processor = _find(content.get("post_processor"))
        tokens = library.get_vocab(with_added_tokens=True)
        names = _role_names(content, processor, [*settings], tokens)
        separators, segments = _pair_template(processor, names)
        segments = segments and has_segment_input([*settings])
        # Both files must agree on a space before a text's first word.
        part: JsonObject = content.get("pre_tokenizer") or {}
        parts: list[JsonObject] = part.get("pretokenizers") or [part]
        byte_level = [p for p in parts if "ByteLevel" in types_of(p)]
        for wanted in (values.get("add_prefix_space") for values in settings):
            value = byte_level[0].get("add_prefix_space") if byte_level else wanted
            if wanted not in (None, value):
                raise ValueError(
                    f"add_prefix_space={wanted} in tokenizer_config.json and {value} "
                    "here; make them the same."
                )
        normalizer = library.normalizer
        fold = normalizer.normalize_str if normalizer is not None else str
        uncased = fold("A") == fold("a")
        config = {"kind": "huggingface", "cased": not uncased, NAMES: names}
        config |= {SEPARATORS: separators, SEGMENTS: segments}
        return Tokenizer(config, read_file(path))


def is_wordpiece(content: JsonObject, settings: Iterable[JsonObject]) -> bool:
    """Whether a tokenizer.json is a WordPiece with BERT's names of special tokens."""
    model = content.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in (None, "WordPiece"):
        return False
    given = {
        role: _name(values.get(key))
        for values in settings
        for role, key in KEY_OF_ROLE.items()
        if values.get(key) is not None
    }
    unknown = model.get("unk_token") if isinstance(model, dict) else None
    return all(role == name for role, name in given.items()) or unknown == "[UNK]"


def has_segment_input(settings: Iterable[JsonObject]) -> bool:
    """Whether transformers gives a model the segments of a row's tokens.

    It does unless `model_input_names` of tokenizer_config.json leaves them out.
    """
    lists = (values.get("model_input_names") for values in settings)
    return all("token_type_ids" in n for n in lists if isinstance(n, list))


def _find(part: object) -> JsonObject:
    """Return the template in a post_processor, or in a sequence of some."""
    if isinstance(part, dict) and part.get("type") in _TEMPLATES:
        return part
    inner = part.get("processors") if isinstance(part, dict) else None
    templates = [_find(item) for item in inner] if isinstance(inner, list) else []
    return next((item for item in templates if item), {})


def _name(token: object) -> str | None:
    """Return the name of a token, which may be an object with its flags."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _role_names(
    content: JsonObject,
    processor: JsonObject,
    settings: list[JsonObject],
    tokens: Container[str],
) -> dict[str, str]:
    """Return the name of each role's token.

    A role that no file names has the default name that is among the `tokens`.
    """
    names: dict[str, str] = {}
    for values in [*settings, _names_of_json(content, processor)]:
        for role, key in KEY_OF_ROLE.items():
            if (name := _name(values.get(key))) is None:
                continue
            if names.setdefault(role, name) != name:
                raise ValueError(
                    f"{key} is {names[role]!r} in one file and {name!r} in another; "
                    "make them the same."
                )
    for role in KEY_OF_ROLE.keys() - names.keys():
        defaults = [name for name in (_ROBERTA_NAMES[role], role) if name in tokens]
        if len(defaults) == 1:
            names[role] = defaults[0]
    if absent := [key for role, key in KEY_OF_ROLE.items() if role not in names]:
        raise ValueError(
            f"nothing says which tokens are the {', '.join(absent)}; write them into "
            'tokenizer_config.json, for example {"mask_token": "<mask>"}.'
        )
    return {role: names[role] for role in SPECIAL_TOKENS}


def _names_of_json(content: JsonObject, processor: JsonObject) -> JsonObject:
    """Return the names of special tokens that tokenizer.json itself determines."""
    model = content["model"]
    names: JsonObject = {"unk_token": model.get("unk_token")}
    vocabulary, number = model.get("vocab"), model.get("unk_id")
    if isinstance(vocabulary, list) and type(number) is int:
        names["unk_token"] = vocabulary[number][0] if number < len(vocabulary) else None
    if isinstance(padding := content.get("padding"), dict):
        names["pad_token"] = padding.get("pad_token")
    if processor.get("type") == "TemplateProcessing":
        special = [
            item["SpecialToken"]["id"]
            for item in processor.get("single", [])
            if "SpecialToken" in item
        ]
        if len(special) == 2:
            names |= {"cls_token": special[0], "sep_token": special[1]}
    elif processor:
        names |= {"cls_token": processor["cls"][0], "sep_token": processor["sep"][0]}
    return names


def _pair_template(processor: JsonObject, names: dict[str, str]) -> tuple[int, bool]:
    """Return the number of separators in a pair, and whether it has two segments."""
    kind = processor.get("type")
    if kind == "BertProcessing":
        return 1, True
    if kind == "RobertaProcessing":
        return 2, False
    if kind is None:
        raise ValueError(
            "its post_processor adds no special tokens to a text, as those of BERT and "
            "RoBERTa do; only such tokenizers can be imported."
        )
    short = {names["[CLS]"]: "c", names["[SEP]"]: "s"}
    single, pair = (
        " ".join(
            f"{short.get(part['id'], part['id'])}:{part['type_id']}"
            for item in processor.get(name, [])
            for part in item.values()
        )
        for name in ("single", "pair")
    )
    if single != "c:0 A:0 s:0" or pair not in _PAIRS:
        raise ValueError(
            f"its post_processor makes {single!r} of a text and {pair!r} of a pair, "
            f"where c is cls_token and s is sep_token; only 'c:0 A:0 s:0' and "
            f"{', '.join(map(repr, _PAIRS))} can be imported."
        )
    return _PAIRS[pair]


def write_files(
    tokenizer: Tokenizer, content: bytes, config: JsonObject, directory: epath.Path
) -> None:
    """Write the vocabulary, the `content` of tokenizer.json, and tokenizer_config.json.

    `config` has the keys of the latter that not every tokenizer has.
    """
    names = tokenizer.special_names.items()
    config = config | {KEY_OF_ROLE[role]: name for role, name in names}
    vocabulary = vocabulary_file(tokenizer.kind)
    (directory / vocabulary).write_bytes(tokenizer.files[vocabulary])
    (directory / TOKENIZER_JSON).write_bytes(content)
    write_json(config, directory / "tokenizer_config.json")
