"""Sentencepiece tokenizers as files of Hugging Face's, and back.

Its library has other arithmetic (unigram sums in float64, sentencepiece in float32) and
another normaliser (it looks up a letter with its marks, not the longest rule), so ids
differ on rare strings: on how many is counted at each export. The sentencepiece model
lies beside `tokenizer.json`, and is what an import reads.
"""

import dataclasses
import json
import random
import unicodedata
from collections.abc import Iterator
from typing import Any

from etils import epath
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.formats.model_files import read_file
from bert_jax.formats.tokenizer_export import template
from bert_jax.formats.tokenizers import ROLES, library_tokenizer, read_or_empty
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

MODEL, WHOLE, CONFIG = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
OURS = "bert_jax"
"""Where `tokenizer_config.json` holds our own."""
PROBE_SIZE = 2000

_SPACE = "\u2581"
_NORMAL = 1
# Numbers of fields in sentencepiece_model.proto, and the only values that we train.
_TRAINER = {"treat_whitespace_as_suffix": (24, 0), "byte_fallback": (35, 0)}
_NORMALIZER = {
    "add_dummy_prefix": (3, 1),
    "remove_extra_whitespaces": (4, 1),
    "escape_whitespaces": (5, 1),
}


@dataclasses.dataclass(frozen=True)
class TokenizerDifferences:
    """On how many strings of a fixed probe Hugging Face's library gives other ids."""

    strings: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """One line where there is something to warn of."""
        if not self.differing:
            return ""
        return (
            f"tokenizer.json gives other ids than sentencepiece to {self.differing:,} "
            f"of {self.strings:,} strings of the probe; ids may differ on rare strings "
            "(docs/interop.md)."
        )


def write_sentencepiece(
    tokenizer: Tokenizer, directory: epath.Path, model_max_length: int
) -> TokenizerDifferences:
    """Write a unigram or BPE tokenizer as transformers reads it, with its model.

    Raises:
        ValueError: the model was trained with a setting that ours never have.
    """
    files, differences = sentencepiece_files(tokenizer, model_max_length)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return differences


def sentencepiece_files(
    tokenizer: Tokenizer, model_max_length: int
) -> tuple[dict[str, bytes], TokenizerDifferences]:
    """The files' bytes by name, and what differs. Errors as `write_sentencepiece`."""
    charsmap, types = read_model(tokenizer.files[MODEL])
    strings = probe(tokenizer)
    found = []
    for normalizer in _normalizers(charsmap):
        content = _whole(tokenizer, types, normalizer).to_str(pretty=True)
        found.append((measure(tokenizer, content, strings), content))
    differences, content = min(found, key=lambda pair: pair[0].differing)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model_max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **dict(zip(ROLES, SPECIAL_TOKENS, strict=True)),
        OURS: tokenizer.config,
    }
    files = {
        MODEL: tokenizer.files[MODEL],
        WHOLE: content.encode(),
        CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
    }
    return files, differences


def measure(
    tokenizer: Tokenizer, content: str, strings: list[str]
) -> TokenizerDifferences:
    """How often a tokenizer.json of this content gives other ids than ours."""
    library = HuggingFaceTokenizer.from_str(content)
    theirs = library.encode_batch_fast(strings, add_special_tokens=False)
    pairs = zip(strings, tokenizer.encode_batch(strings), theirs, strict=True)
    differing = [text for text, ids, other in pairs if ids != other.ids]
    return TokenizerDifferences(len(strings), len(differing), tuple(differing[:3]))


def probe(tokenizer: Tokenizer, size: int = PROBE_SIZE) -> list[str]:
    """The same strings each time: of pieces, alone or with marks, and of characters."""
    generator = random.Random(0)
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    pieces = [token.replace(_SPACE, " ") for token in tokens]
    pieces = [piece for piece in pieces if piece not in SPECIAL_TOKENS]
    marks = [*map(chr, range(0x300, 0x370)), *map(chr, range(0x900, 0x980))]
    # Letters beside the marks that Unicode composes them with.
    composing = [unicodedata.normalize("NFD", chr(i)) for i in range(0xC0, 0x180)]
    makers = [pieces, composing, marks, []]
    strings = []
    for i in range(size):
        # By turns of four; the last is of any characters.
        kind = makers[i % 4]
        parts = []
        for _ in range(generator.randint(1, 12)):
            if kind:
                source = kind if generator.random() < 0.5 else pieces
                parts.append(generator.choice(source))
            else:
                # The first two planes hold nearly all scripts; no half of a pair.
                code = generator.choice((0x500, 0xD800, 0x20000))
                number = generator.randrange(1, code)
                parts.append(chr(number if number >> 11 != 27 else 32))
        strings.append("".join(parts))
    return strings


def _normalizers(charsmap: bytes) -> Iterator[normalizers.Normalizer]:
    """Ways of doing what sentencepiece does; each is best for some model's rules."""
    spaces = [
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r" \z"), ""),
        # The mark itself in a text does not stand for the one before the first word.
        normalizers.Replace(Regex(rf"\A{_SPACE}"), f" {_SPACE}"),
    ]
    if not charsmap:
        yield normalizers.Sequence(spaces)
        return
    rules = normalizers.Precompiled(charsmap)
    # The library looks up what Unicode calls a grapheme, and drops the marks of one
    # whose letter has a rule. A control character parts them: everywhere where rules
    # are of one character each, else where a mark composes with nothing before it.
    for place in (r"(?=[\s\S])", r"(?=\P{M})|(?<![\p{L}\p{M}\p{Sm}])(?=\p{M})"):
        apart = normalizers.Replace(Regex(place), "\1")
        # The rules delete it but for the first.
        removed = normalizers.Replace("\1", "")
        yield normalizers.Sequence([apart, rules, removed, *spaces])
    yield normalizers.Sequence([rules, *spaces])


def _whole(
    tokenizer: Tokenizer, types: list[int], normalizer: normalizers.Normalizer
) -> HuggingFaceTokenizer:
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    model = _unigram if tokenizer.kind == "unigram" else _bpe
    whole = HuggingFaceTokenizer(model(tokenizer, tokens, types))
    whole.normalizer = normalizer
    whole.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=_SPACE, prepend_scheme="first", split=False
    )
    whole.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="first")
    whole.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    whole.post_processor = template(tokenizer)
    return whole


def _unigram(
    tokenizer: Tokenizer, tokens: list[str], types: list[int]
) -> models.Unigram:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(tokenizer.files[MODEL])
    scores = [processor.get_score(i) for i in range(len(tokens))]
    # Special tokens are never found in a text, nor may any path be worth their score.
    never = 100 * min(scores) - 1000
    scored = [
        (token, score if kind == _NORMAL else never)
        for token, score, kind in zip(tokens, scores, types, strict=True)
    ]
    return models.Unigram(scored, unk_id=tokenizer.unk_id, byte_fallback=False)


def _bpe(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> models.BPE:
    """Every way of joining two pieces to a third, in the order of the thirds' ids."""
    ids = {token: i for i, token in enumerate(tokens)}
    normal = {t for t, kind in zip(tokens, types, strict=True) if kind == _NORMAL}
    merges = [
        (token[:i], token[i:])
        for token in tokens
        if token in normal
        for i in range(1, len(token))
        if token[:i] in normal and token[i:] in normal
    ]
    return models.BPE(ids, merges, unk_token="[UNK]", fuse_unk=True)


def read_model(content: bytes) -> tuple[bytes, list[int]]:
    """The normaliser's rules, and the type of each piece, of a sentencepiece model.

    By hand: its Python classes ask for a newer protobuf than TensorFlow allows.

    Raises:
        ValueError: a setting or a type of piece cannot be exported.
    """
    parts = list(_fields(content))
    types = [dict(_fields(part)).get(3, _NORMAL) for n, part in parts if n == 1]
    trainer, normalizer = (
        {
            n: value
            for part in parts
            if part[0] == number
            for n, value in _fields(part[1])
        }
        for number in (2, 3)
    )
    for fields, settings in ((trainer, _TRAINER), (normalizer, _NORMALIZER)):
        for name, (number, only) in settings.items():
            if fields.get(number, only) != only:
                raise _not_exported(f"{name}={bool(fields[number])}")
    if not set(types) <= {_NORMAL, 2, 3}:  # beside them only [UNK] and the special
        raise _not_exported("pieces that are user-defined, unused or bytes")
    return normalizer.get(2, b""), types


def _not_exported(what: str) -> ValueError:
    return ValueError(
        f"a sentencepiece model with {what} cannot be exported to transformers; "
        "use `bert-jax convert export --to stablehlo`."
    )


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message, undecoded."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = content[place]
            place, value = place + 1, value | (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(content):
        field, wire = divmod(number(), 8)
        if wire == 0:
            yield field, number()
            continue
        size = {1: lambda: 8, 2: number, 5: lambda: 4}[wire]()
        yield field, content[place : place + size]
        place += size


def is_sentencepiece(directory: epath.Path) -> bool:
    """Whether a directory holds what `write_sentencepiece` wrote."""
    return (directory / MODEL).exists() and OURS in read_or_empty(directory / CONFIG)


def read_sentencepiece(directory: epath.Path) -> Tokenizer:
    """The tokenizer that `write_sentencepiece` wrote, with the bytes that it had.

    Raises:
        ValueError: the files are damaged, or tokenizer.json has another vocabulary.
    """
    config, content = (
        read_or_empty(directory / CONFIG)[OURS],
        read_file(directory / MODEL),
    )
    try:
        tokenizer = Tokenizer(config, content)
    except ValueError as error:
        raise ValueError(f"{directory / MODEL}: {error}") from error
    whole = read_or_empty(directory / WHOLE)
    if whole:
        library = library_tokenizer(whole, directory / WHOLE)
        tokens = tokenizer.tokens(range(tokenizer.vocab_size))
        if library.get_vocab() != {token: i for i, token in enumerate(tokens)}:
            raise ValueError(
                f"{directory}: {WHOLE} has another vocabulary than {MODEL}; remove the "
                "file that the model was not trained with."
            )
    return tokenizer
