"""Write sentencepiece tokenizers as Hugging Face's files, and read these back.

Hugging Face's library computes differently: it sums unigram scores in float64
(sentencepiece: float32), and normalizes a letter with its marks (sentencepiece: by the
longest rule). So ids differ on rare strings; each export counts them. The sentencepiece
model is written beside `tokenizer.json`, and an import reads the model.
"""

import dataclasses
import random
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
from etils import epath
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from bert_jax.formats.model_files import read_file, read_object_or_empty
from bert_jax.formats.tokenizer_json import FAST, TOKENIZER_JSON, write_files
from bert_jax.formats.tokenizers import CONFIG, library_tokenizer, template
from bert_jax.storage.files import JsonObject, located
from bert_jax.tokenization import SPECIAL_TOKENS, Tokenizer

MODEL = "tokenizer.model"
OURS = "bert_jax"
"""Key of our own configuration in `tokenizer_config.json`."""
PROBE_SIZE = 2000

_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
# Numbers of fields in sentencepiece_model.proto, and the only values that we train.
_TRAINER = {"treat_whitespace_as_suffix": (24, 0), "byte_fallback": (35, 0)}
_NORMALIZER = {
    "add_dummy_prefix": (3, 1),
    "remove_extra_whitespaces": (4, 1),
    "escape_whitespaces": (5, 1),
}


@dataclasses.dataclass(frozen=True)
class TokenizerDifferences:
    """How many probe strings Hugging Face's library gives other ids."""

    strings: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """One line if some strings differ, else an empty string."""
        if not self.differing:
            return ""
        return (
            f"tokenizer.json gives other ids than sentencepiece to {self.differing:,} "
            f"of {self.strings:,} strings of the probe; ids may differ on rare strings "
            "(docs/interop.md)."
        )


def write_sentencepiece(
    tokenizer: Tokenizer, directory: epath.Path, limits: JsonObject
) -> TokenizerDifferences:
    """Write a unigram or BPE tokenizer as transformers reads it, and its model.

    The normalizer with the fewest differences is written. `limits` are
    `model_max_length` and `model_input_names`. Raise ValueError if the model has a
    setting that models of bert_jax never have.
    """
    charsmap, types = read_model(tokenizer.files[MODEL])
    strings = probe_strings(tokenizer)
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    library = HuggingFaceTokenizer(_model(tokenizer, tokens, types))
    library.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=_SPACE, prepend_scheme="first", split=False
    )
    library.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="first")
    library.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL_TOKENS])
    library.post_processor = template(tokenizer)
    candidates = []
    for normalizer in _normalizers(charsmap):
        library.normalizer = normalizer
        content = library.to_str(pretty=True)
        candidates.append((count_differences(tokenizer, content, strings), content))
    differences, content = min(candidates, key=lambda pair: pair[0].differing)
    config = FAST | {OURS: tokenizer.config} | limits
    write_files(tokenizer, content.encode(), config, directory)
    return differences


def count_differences(
    tokenizer: Tokenizer, content: str, strings: list[str]
) -> TokenizerDifferences:
    """Count the strings to which a tokenizer.json of this content gives other ids."""
    library = HuggingFaceTokenizer.from_str(content)
    theirs = library.encode_batch_fast(strings, add_special_tokens=False)
    pairs = zip(strings, tokenizer.encode_batch(strings), theirs, strict=True)
    differing = [text for text, ids, other in pairs if ids != other.ids]
    return TokenizerDifferences(len(strings), len(differing), tuple(differing[:3]))


def probe_strings(tokenizer: Tokenizer, size: int = PROBE_SIZE) -> list[str]:
    """Return pseudorandom strings, the same each time.

    In turn they join pieces alone, pieces and letters with marks, pieces and marks, and
    any characters.
    """
    generator = random.Random(0)
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    pieces = [token.replace(_SPACE, " ") for token in tokens]
    pieces = [piece for piece in pieces if piece not in SPECIAL_TOKENS]
    marks = [*map(chr, range(0x300, 0x370)), *map(chr, range(0x900, 0x980))]
    # Letters followed by the marks that Unicode composes them with.
    composing = [unicodedata.normalize("NFD", chr(i)) for i in range(0xC0, 0x180)]
    sources = [pieces, composing, marks, []]

    def part(source: list[str]) -> str:
        if source:
            return generator.choice(source if generator.random() < 0.5 else pieces)
        # The first two planes hold nearly all scripts. Surrogates, the code points
        # from 27 * 2048 to 28 * 2048, become spaces.
        code = generator.randrange(1, generator.choice((0x500, 0xD800, 0x20000)))
        return chr(code if code >> 11 != 27 else 32)

    return [
        "".join(part(sources[i % 4]) for _ in range(generator.randint(1, 12)))
        for i in range(size)
    ]


def _normalizers(charsmap: bytes) -> Iterator[normalizers.Normalizer]:
    """Yield imitations of sentencepiece's normalizer; each suits some models best."""
    spaces = [
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r" \z"), ""),
        # A "\u2581" in the text is not the one that marks the first word.
        normalizers.Replace(Regex(rf"\A{_SPACE}"), f" {_SPACE}"),
    ]
    if not charsmap:
        yield normalizers.Sequence(spaces)
        return
    rules = normalizers.Precompiled(charsmap)
    # The library looks up whole graphemes, and drops the marks of a letter that has a
    # rule. A control character separates letter and marks: everywhere if the rules are
    # of one character each, else only before a mark that composes with nothing.
    for place in (r"(?=[\s\S])", r"(?=\P{M})|(?<![\p{L}\p{M}\p{Sm}])(?=\p{M})"):
        separated = normalizers.Replace(Regex(place), "\1")
        # The rules delete the control characters except for the first.
        removed = normalizers.Replace("\1", "")
        yield normalizers.Sequence([separated, rules, removed, *spaces])
    yield normalizers.Sequence([rules, *spaces])


def _model(tokenizer: Tokenizer, tokens: list[str], types: list[int]) -> models.Model:
    if tokenizer.kind == "unigram":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(tokenizer.files[MODEL])
        scores = np.array([processor.get_score(i) for i in range(len(tokens))])
        # A special token must not be read in a text, so its score is below any path's.
        scores[np.not_equal(types, _NORMAL)] = 100 * scores.min() - 1000
        scored = list(zip(tokens, scores.tolist(), strict=True))
        return models.Unigram(scored, unk_id=tokenizer.unk_id, byte_fallback=False)
    # Any two pieces are merged to a third, lowest ids first.
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
    """Return the normalizer's rules and the type of each piece of a model.

    The package's own protobuf classes need a newer protobuf than TensorFlow allows.
    Raise ValueError if a setting or a type of piece cannot be exported.
    """
    messages = _fields(content)
    types = [dict(_fields(value)).get(3, _NORMAL) for n, value in messages if n == 1]
    trainer, normalizer = (
        dict(field for n, value in messages if n == number for field in _fields(value))
        for number in (2, 3)
    )
    wrong = [
        f"{name}={bool(fields[number])}"
        for fields, settings in ((trainer, _TRAINER), (normalizer, _NORMALIZER))
        for name, (number, only) in settings.items()
        if fields.get(number, only) != only
    ]
    if not set(types) <= {_NORMAL, _UNKNOWN, _CONTROL}:
        wrong.append("pieces that are user-defined, unused or bytes")
    if wrong:
        raise ValueError(
            f"a sentencepiece model with {wrong[0]} cannot be exported to "
            "transformers; use `bert-jax convert export --to stablehlo`."
        )
    return normalizer.get(2, b""), types


def _fields(content: bytes) -> list[tuple[int, Any]]:
    """Return the number and the value of each field of a protobuf message."""
    message = Empty.FromString(content)
    return [(field.field_number, field.data) for field in UnknownFieldSet(message)]


def read_sentencepiece(directory: epath.Path) -> Tokenizer | None:
    """Return the tokenizer that `write_sentencepiece` wrote, with the same bytes.

    None if the directory holds no such tokenizer. Raise ValueError if the files are
    damaged, or tokenizer.json has another vocabulary.
    """
    path = directory / MODEL
    config = read_object_or_empty(directory / CONFIG) if path.exists() else {}
    if OURS not in config:
        return None
    with located(path):
        tokenizer = Tokenizer(config[OURS], read_file(path))
    if content := read_object_or_empty(directory / TOKENIZER_JSON):
        library = library_tokenizer(content, directory / TOKENIZER_JSON)
        tokens = tokenizer.tokens(range(tokenizer.vocab_size))
        if library.get_vocab() != {token: i for i, token in enumerate(tokens)}:
            raise ValueError(
                f"{directory}: {TOKENIZER_JSON} has another vocabulary than {MODEL}; "
                "remove the file that the model was not trained with."
            )
    return tokenizer
