"""Texts → words; sentences of words → rows of tokens.

A word's first token bears its tag, and is where the tag is predicted; the others bear
none (Devlin et al. 2018, §5.3).
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import pre_tokenizers

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import Examples, from_rows
from bert_jax.metrics.entities import Scheme, marks_entities
from bert_jax.tasks.conll import Sentence
from bert_jax.tokenization import Tokenizer

# The blocks that BERT's tokenizer takes one character at a time.
_IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def split_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words of a text, and where in it they are, in characters.

    Split as BERT's basic tokenizer does: at white space, and around each punctuation
    mark and each CJK ideograph.
    """
    spaced = _IDEOGRAPHS.sub(" ", text)
    found = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(spaced)
    offsets = [place for _, place in found]
    offsets += [match.span() for match in _IDEOGRAPHS.finditer(text)]
    offsets.sort()
    return [text[start:end] for start, end in offsets], offsets


def sentence_from_text(text: str) -> Sentence:
    """A text to tag; its entities will have their places in it."""
    words, offsets = split_words(text)
    return Sentence(tuple(words), text=text, offsets=tuple(offsets))


def learned_scheme(model: BertConfig) -> Scheme | None:
    """Of the tags that a model learned: never IOB1, see `ner.labels`; None if they are
    plain labels."""
    if not marks_entities(model.labels):
        return None
    ends = any(label.startswith(("E-", "S-")) for label in model.labels)
    return "IOBES" if ends else "IOB2"


def tokenize(
    examples: Sequence[Sentence],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> Examples:
    """Return rows with `label` and `word` by token, int32.

    They are the tag's and the word's index at the first token of a word, else -1. A
    sentence that is too long becomes several rows, split between words; a word longer
    than a row is cut, and a word without a token is [UNK].
    """
    room = min(config.max_length, model.max_position_embeddings) - 2
    pieces = _pieces(examples, tokenizer, room)
    numbers = {tag: i for i, tag in enumerate(model.labels)}
    scheme = learned_scheme(model)
    rows: list[tuple[list[int], int]] = []
    record: list[int] = []
    values: dict[str, list[int]] = {"label": [], "word": []}
    for number, sentence in enumerate(examples):
        tags = [] if sentence.tags is None else sentence.tags_in(scheme)
        words = [pieces[word] for word in sentence.words]
        for part in _parts([len(ids) for ids in words], room):
            ids = [tokenizer.cls_id]
            firsts = {}
            for i in part:
                firsts[len(ids)] = i
                ids += words[i]
            ids.append(tokenizer.sep_id)
            rows.append((ids, len(ids)))
            record.append(number)
            places = [firsts.get(place, -1) for place in range(len(ids))]
            values["word"] += places
            values["label"] += [
                numbers[tags[i]] if tags and i >= 0 else -1 for i in places
            ]
    by_token = {name: np.array(array, np.int32) for name, array in values.items()}
    return from_rows(rows, np.array(record, np.int32), by_token=by_token)


def _pieces(
    examples: Sequence[Sentence], tokenizer: Tokenizer, room: int
) -> dict[str, list[int]]:
    """The ids of each distinct word: at least one, and at most `room`."""
    words = list(
        dict.fromkeys(word for sentence in examples for word in sentence.words)
    )
    found = tokenizer.encode_batch(words)
    unknown = [tokenizer.unk_id]
    return {w: ids[:room] or unknown for w, ids in zip(words, found, strict=True)}


def _parts(lengths: Sequence[int], room: int) -> Iterator[range]:
    """Words that fill a row each, as many as fit; one part at least."""
    start, used = 0, 0
    for i, length in enumerate(lengths):
        if used + length > room:
            yield range(start, i)
            start, used = i, 0
        used += length
    yield range(start, len(lengths))
