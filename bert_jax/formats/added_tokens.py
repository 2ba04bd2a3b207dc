"""Tokens that Hugging Face's files add to a WordPiece vocabulary.

`tokenizer.json`, `tokenizer_config.json` (`added_tokens_decoder`), `added_tokens.json`
and the lists of further special tokens each may name some. The library looks for them
in a text before it cuts that into words; those of the vocabulary's own special tokens
are left out here, since in our texts these are plain text.
"""

from collections.abc import Iterator
from typing import Any

from etils import epath

from bert_jax.tokenization import ADDED_FLAGS, SPECIAL_TOKENS, Tokenizer, is_text

LISTS = ("additional_special_tokens", "extra_special_tokens", "bos_token", "eos_token")
"""Keys of special tokens beyond BERT's own, as a list, an object, or one token."""

_ABSENT = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}


def added_tokens(
    tokenizer: Tokenizer, files: dict[epath.Path, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The added tokens as a Tokenizer's configuration lists them, in order of ids.

    Args:
        tokenizer: of the vocabulary alone.
        files: what each file holds that may name some, by its path.

    Raises:
        ValueError: an entry is malformed, two disagree, or an id cannot be kept.
    """
    found: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    paths: dict[str, epath.Path] = {}
    special: dict[str, epath.Path] = {}
    for path, values in files.items():
        for token, number, flags in _with_ids(values, path):
            paths.setdefault(token, path)
            if numbers.setdefault(token, number) != number:
                raise _refusal(path, token, number, f"{numbers[token]} in another file")
            if flags and found.setdefault(token, flags) != flags:
                raise _refusal(path, token, number, "found otherwise by another file")
        special |= {token: path for token in _without_ids(values, path)}
    size = tokenizer.vocab_size
    ids = {token: i for i, token in enumerate(tokenizer.tokens(range(size)))}
    for token, path in special.items():
        if token not in numbers and token not in ids:
            raise ValueError(
                f"{path}: the special token {token!r} has no id in any file; take it "
                "out there, or save the tokenizer again by transformers."
            )
        numbers.setdefault(token, ids.get(token, -1))
        paths.setdefault(token, path)
        found.setdefault(token, _flags({"special": True}))
    in_order = sorted(numbers, key=numbers.__getitem__)
    due = size
    for token in in_order:
        wrong = _wrong_id(token, numbers[token], tokenizer, ids, due)
        if wrong:
            raise _refusal(paths[token], token, numbers[token], wrong)
        due += token not in ids
    return [
        {"content": token} | found.get(token, _flags({}))
        for token in in_order
        if token not in SPECIAL_TOKENS
    ]


def _wrong_id(
    token: str, number: int, tokenizer: Tokenizer, ids: dict[str, int], due: int
) -> str:
    """Why a token cannot have this id, where it is the next one; or nothing."""
    if token in ids:
        return "" if number == ids[token] else f"{ids[token]} in the vocabulary"
    if number < tokenizer.vocab_size:
        return f"{tokenizer.token(number)!r} in the vocabulary"
    return "" if number == due else f"due as {due}, without holes"


def _refusal(path: epath.Path, token: str, number: int, why: str) -> ValueError:
    return ValueError(
        f"{path}: the added token {token!r} of id {number} is {why}; put the files "
        "there that belong together, as transformers' save_pretrained writes them."
    )


def _flags(entry: dict[str, Any]) -> dict[str, bool]:
    """How a token is looked for; as in the library where it is not said."""
    said = {name: entry[name] for name in ADDED_FLAGS if name in entry}
    return {"normalized": not said.get("special", False), **_ABSENT, **said}


def _with_ids(
    values: dict[str, Any], path: epath.Path
) -> Iterator[tuple[str, int, dict[str, bool]]]:
    """Token, id, and how it is looked for where that is said."""
    if path.name == "added_tokens.json":
        for token, number in values.items():
            yield _checked(path, token, number), number, {}
        return
    listed = values.get("added_tokens") or []
    decoder = values.get("added_tokens_decoder") or {}
    if not isinstance(listed, list) or not isinstance(decoder, dict):
        raise _malformed(path, listed if decoder == {} else decoder)
    entries = [(entry, _get(entry, "id")) for entry in listed]
    for key, entry in decoder.items():
        number = int(key) if key.isascii() and key.isdigit() and len(key) < 10 else None
        entries.append((entry, number))
    for entry, number in entries:
        token = _checked(path, _get(entry, "content"), number, entry)
        flags = _flags(entry)
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise _malformed(path, entry)
        yield token, number, flags


def _without_ids(values: dict[str, Any], path: epath.Path) -> Iterator[str]:
    """Special tokens beyond BERT's own, by name alone."""
    if path.name == "added_tokens.json":
        return
    for key in LISTS:
        listed = values.get(key) or []
        if isinstance(listed, dict) and "content" not in listed:
            listed = list(listed.values())
        for entry in listed if isinstance(listed, list) else [listed]:
            token = entry if isinstance(entry, str) else _get(entry, "content")
            yield _checked(path, token, 0, entry)


def _get(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _checked(path: epath.Path, token: Any, number: Any, entry: Any = None) -> str:
    """The token, if both are what they must be."""
    whole = type(number) is int and 0 <= number < 1 << 31
    if not isinstance(token, str) or not is_text(token) or not whole:
        raise _malformed(path, {token: number} if entry is None else entry)
    return token


def _malformed(path: epath.Path, entry: Any) -> ValueError:
    return ValueError(
        f"{path}: the added token {entry!r:.80} must have content, a text, an id, and "
        f"of {', '.join(ADDED_FLAGS)} each true or false; fetch the file again."
    )
