"""Split texts into words, and tokenize sentences of words.

Only a word's first token has the word's tag and predicts it (Devlin et al. 2018, §5.3).
"""

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import pre_tokenizers

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.data.examples import TokenizedExamples, build_row, from_rows
from bert_jax.metrics.entities import Scheme, are_entity_tags
from bert_jax.tasks.lengths import row_length
from bert_jax.tasks.tagging.conll import Sentence
from bert_jax.tokenization import Tokenizer

# The Unicode blocks in which BERT's tokenizer makes each character a word.
_IDEOGRAPHS = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)


def split_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the words of a text, and the start and end of each, in characters.

    As BERT's basic tokenizer, it splits at white space and around each punctuation mark
    and each CJK ideograph.
    """
    without_ideographs = _IDEOGRAPHS.sub(" ", text)
    pre_tokens = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(without_ideographs)
    offsets = [offset for _, offset in pre_tokens]
    offsets += [match.span() for match in _IDEOGRAPHS.finditer(text)]
    offsets.sort()
    return [text[start:end] for start, end in offsets], offsets


def sentence_from_text(text: str) -> Sentence:
    """Return a text as words to tag, with their offsets in the text."""
    words, offsets = split_words(text)
    return Sentence(tuple(words), text=text, offsets=tuple(offsets))


def learned_scheme(model: BertConfig) -> Scheme | None:
    """Return the scheme of a model's labels, never IOB1; None if they are plain labels.

    `TokenClassificationTask.labels` converts IOB1 to IOB2; imported models may be IO.
    """
    if not are_entity_tags(model.labels):
        return None
    if any(label.startswith(("E-", "S-")) for label in model.labels):
        return "IOBES"
    prefixes = {label[:2].upper() for label in model.labels if label[1:2] == "-"}
    return "IO" if prefixes == {"I-"} else "IOB2"


def tokenize(
    examples: Sequence[Sentence],
    tokenizer: Tokenizer,
    model: BertConfig,
    config: ExamplesConfig,
) -> TokenizedExamples:
    """Return rows with two int32 arrays by token, `label` and `word`.

    They hold the index of the tag and of the word at a word's first token, else -1. A
    sentence that is too long is split between words into several rows; a word longer
    than a row is cut, and a word without any token becomes [UNK].
    """
    room = row_length(config, model) - 2
    names = list(dict.fromkeys(word for own in examples for word in own.words))
    encoded = tokenizer.encode_batch(tokenizer.after_space(names))
    word_ids = {
        name: ids[:room] or [tokenizer.unk_id]
        for name, ids in zip(names, encoded, strict=True)
    }
    label_ids = {tag: i for i, tag in enumerate(model.labels)}
    scheme = learned_scheme(model)
    rows: list[tuple[list[int], int]] = []
    example_of_row: list[int] = []
    values: dict[str, list[int]] = {"label": [], "word": []}
    for example_index, sentence in enumerate(examples):
        tags = sentence.tags_in(scheme)
        words = [word_ids[word] for word in sentence.words]
        for word_range in _ranges_that_fit([len(ids) for ids in words], room):
            pieces = [words[i] for i in word_range]
            row = build_row(tokenizer, itertools.chain(*pieces))
            rows.append(row)
            example_of_row.append(example_index)
            word_indices = np.full(len(row[0]), -1)
            # [CLS] is at 0, so that the first word starts at 1.
            word_indices[np.cumsum([1, *map(len, pieces)])[:-1]] = word_range
            values["word"] += word_indices.tolist()
            values["label"] += [
                label_ids[tags[i]] if tags and i >= 0 else -1 for i in word_indices
            ]
    by_token = {name: np.array(array, np.int32) for name, array in values.items()}
    return from_rows(rows, np.array(example_of_row, np.int32), by_token=by_token)


def _ranges_that_fit(lengths: Sequence[int], room: int) -> Iterator[range]:
    """Yield ranges of words, each as long as fits into `room` tokens; at least one."""
    start, used = 0, 0
    for i, length in enumerate(lengths):
        if used + length > room:
            yield range(start, i)
            start, used = i, 0
        used += length
    yield range(start, len(lengths))
