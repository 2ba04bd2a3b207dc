"""Read the tokens that Hugging Face's files add to a WordPiece vocabulary.

`tokenizer.json`, `tokenizer_config.json` (`added_tokens_decoder`), `added_tokens.json`
and the lists of further special tokens may each name some. The library finds them in a
text before it splits the text into words. BERT's own special tokens are left out here,
since our Tokenizer reads their names as plain text.
"""

from collections.abc import Iterator
from typing import Any

from etils import epath

from bert_jax.storage.files import JsonObject
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer
from bert_jax.tokenization.wordpiece import ADDED_FLAGS, is_text

LISTS = ("additional_special_tokens", "extra_special_tokens", "bos_token", "eos_token")
"""Keys of special tokens beyond BERT's own, as a list, an object, or one token."""

_DEFAULTS = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}


def read_added_tokens(
    tokenizer: Tokenizer, files: dict[epath.Path, JsonObject]
) -> list[JsonObject]:
    """Return the entries of a Tokenizer's configuration, in order of ids.

    Raise ValueError if an entry is malformed, two disagree, or an id cannot be kept.
    The `tokenizer` is of the vocabulary alone; `files` are the contents that may name
    added tokens, by path.
    """
    flags_of: dict[str, JsonObject] = {}
    id_of: dict[str, int] = {}
    path_of: dict[str, epath.Path] = {}
    special: dict[str, epath.Path] = {}
    for path, values in files.items():
        for token, i, flags in _tokens_with_ids(values, path):
            path_of.setdefault(token, path)
            if id_of.setdefault(token, i) != i:
                raise _refusal(path, token, i, f"but {id_of[token]} in another file")
            if flags and flags_of.setdefault(token, flags) != flags:
                raise _refusal(path, token, i, "but other flags in another file")
        special |= dict.fromkeys(_special_tokens(values, path), path)
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    for token, path in special.items():
        if token not in id_of and token not in vocabulary:
            raise ValueError(
                f"{path}: the special token {token!r} has no id in any file; take it "
                "out there, or save the tokenizer again by transformers."
            )
        id_of.setdefault(token, vocabulary.get(token, -1))
        path_of.setdefault(token, path)
        flags_of.setdefault(token, _flags({"special": True}))
    in_order = sorted(id_of, key=id_of.__getitem__)
    for token in in_order:
        # A token that is not in the vocabulary gets the next free id.
        expected = vocabulary.setdefault(token, len(vocabulary))
        if problem := _id_problem(id_of[token], expected, tokens):
            raise _refusal(path_of[token], token, id_of[token], problem)
    return [
        {"content": token} | flags_of.get(token, _flags({}))
        for token in in_order
        if token not in SPECIAL_TOKENS
    ]


def _id_problem(i: int, expected: int, tokens: list[str]) -> str:
    if i == expected:
        return ""
    if expected < len(tokens):
        return f"but {expected} in the vocabulary"
    if i < len(tokens):
        return f"which is {tokens[i]!r} in the vocabulary"
    return f"but the next free id is {expected}"


def _refusal(path: epath.Path, token: str, i: int, problem: str) -> ValueError:
    return ValueError(
        f"{path}: the added token {token!r} has id {i}, {problem}; use files "
        "that belong together, as transformers' save_pretrained writes them."
    )


def _flags(entry: JsonObject) -> dict[str, bool]:
    """Return how a token is matched, with the library's defaults."""
    given = {name: entry[name] for name in ADDED_FLAGS if name in entry}
    return {"normalized": not given.get("special", False), **_DEFAULTS, **given}


def _tokens_with_ids(
    values: JsonObject, path: epath.Path
) -> Iterator[tuple[str, int, dict[str, bool]]]:
    """Yield each token with its id, and its flags if the file has any."""
    if path.name == "added_tokens.json":
        for token, i in values.items():
            yield _checked(path, token, i), i, {}
        return
    listed = values.get("added_tokens") or []
    decoder = values.get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(decoder, dict):
        raise _malformed(path, listed if decoder == {} else decoder)
    entries = [(entry, _get(entry, "id")) for entry in listed]
    for key, entry in decoder.items():
        is_id = key.isascii() and key.isdigit() and len(key) < 10
        entries.append((entry, int(key) if is_id else None))
    for entry, i in entries:
        token = _checked(path, _get(entry, "content"), i, entry)
        flags = _flags(entry)
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise _malformed(path, entry)
        yield token, i, flags


def _special_tokens(values: JsonObject, path: epath.Path) -> Iterator[str]:
    """Yield the special tokens beyond BERT's own, which are listed without ids."""
    if path.name == "added_tokens.json":
        return
    for key in LISTS:
        listed = values.get(key) or []
        if isinstance(listed, dict) and "content" not in listed:
            listed = list(listed.values())
        for entry in listed if isinstance(listed, list) else [listed]:
            token = entry if isinstance(entry, str) else _get(entry, "content")
            yield _checked(path, token, 0, entry)


def _get(entry: object, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _checked(path: epath.Path, token: object, i: object, entry: object = None) -> str:
    is_id = type(i) is int and 0 <= i < 1 << 31
    if not isinstance(token, str) or not is_text(token) or not is_id:
        raise _malformed(path, {token: i} if entry is None else entry)
    return token


def _malformed(path: epath.Path, entry: object) -> ValueError:
    return ValueError(
        f"{path}: the added token {entry!r:.80} must have content (a string), an id "
        f"and, each true or false, {', '.join(ADDED_FLAGS)}; fetch the file again."
    )
