"""What a fine-tuning run learns from, in a few lines: classes, equal texts, lengths."""

import collections
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.text_report import TextReport, count_unknown
from bert_jax.tasks.finetuning import FinetuningTask
from bert_jax.tasks.predictions import Example, Split, Splits
from bert_jax.tokenization import Tokenizer

_SHOWN_CLASSES = 12
_EXAMINED_EXAMPLES = 5_000


def example_lines(task: FinetuningTask, splits: Splits) -> Iterator[str]:
    """Yield a line on the classes, and one on equal texts, where there are any."""
    both = splits.train, splits.validation
    train, validation = (
        collections.Counter(name for example in part for name in task.classes(example))
        for part in both
    )
    names = {name: train[name] + validation[name] for name in task.model.labels}
    if train or validation:
        order = sorted(names, key=lambda name: -names[name])
        counts = [f"{name} {train[name]:,} + {validation[name]:,}" for name in order]
        if (others := len(counts) - _SHOWN_CLASSES) > 1:
            middle = f"… {others:,} others …"
            counts[_SHOWN_CLASSES - 1 : -1] = [middle]
        yield f"classes (to learn from + to score on): {', '.join(counts)}."
    if parts := list(_equal_texts(task, splits)):
        yield f"equal texts: {'; '.join(parts)}."


def _equal_texts(task: FinetuningTask, splits: Splits) -> Iterator[str]:
    """Yield how many examples repeat another one, in the same split or in another."""
    labels: dict[object, set[str]] = {}
    for example in splits.train:
        label = repr(getattr(example, "label", None))
        labels.setdefault(task.texts(example), set()).add(label)
    if repeated := len(splits.train) - len(labels):
        different = sum(len(own) > 1 for own in labels.values())
        contradict = f" (with different labels: {different:,} texts)" * bool(different)
        yield (
            f"{repeated:,} of {len(splits.train):,} examples to learn from repeat an "
            f"earlier one{contradict}"
        )
    for name, part in (("validation", splits.validation), ("test", splits.test)):
        if shared := sum(task.texts(example) in labels for example in part):
            yield f"{shared:,} of {len(part):,} {name} examples are also learned from"


def length_line(split: Split, boundaries: Sequence[int]) -> str:
    """Return a line on the tokens of the rows, and the lengths they are padded to."""
    lengths = split.tokenized.lengths
    middle, high = np.percentile(lengths, [50, 90])
    return (
        f"tokens of a row: {middle:.0f} in the median, up to {high:.0f} in 90%, "
        f"{lengths.max()} at most; padded to {', '.join(map(str, boundaries))}."
    )


def unknown_tokens(
    task: FinetuningTask, tokenizer: Tokenizer, examples: Sequence[Example]
) -> TextReport:
    """Return the share of [UNK] of examples, some thousands of them, and its causes."""
    step = -(-len(examples) // _EXAMINED_EXAMPLES)
    texts = [text for example in examples[::step] for text in task.texts(example)]
    return count_unknown(tokenizer, texts)
