"""Answers that do not stand at their `answer_start`, and why."""

import collections
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

from bert_jax.tasks.answers.rows import SquadExample

_MAX_LISTED, _MAX_REASONS = 5, 3
_FORMS = "bring contexts and answers into one form before they are counted"
_KEPT = "keep contexts as they were when they were counted"
_COUNTS: dict[str, Callable[[str], str]] = {
    "UTF-16 units, as JavaScript and Java do; count characters": partial(
        re.sub, "[\U00010000-\U0010ffff]", r"\g<0>\g<0>"
    ),
    "bytes of UTF-8; count characters": lambda text: text.encode().decode("latin-1"),
    f"line ends as two characters (CRLF); {_KEPT}": partial(re.sub, "\r?\n", "\r\n"),
    f"line ends as one character, not CRLF; {_KEPT}": partial(re.sub, "\r\n", "\n"),
    f"the composed form (NFC); {_FORMS}": partial(unicodedata.normalize, "NFC"),
    f"the decomposed form (NFD); {_FORMS}": partial(unicodedata.normalize, "NFD"),
    f"several blanks as one; {_KEPT}": partial(re.sub, r"\s+", " "),
    "rightly, but capitals differ; copy answers from their contexts": str.casefold,
}
"""How `answer_start` may count, with the remedy, and the text that it then counts."""


def not_learned(examples: Sequence[SquadExample], total: int) -> str:
    """Return how many questions cannot be learned, the first ids and the main reasons.

    Args:
        examples: the questions that cannot be; each has an answer.
        total: the number of all questions.
    """
    ids = [f"{example.id:.40}" for example in examples[:_MAX_LISTED]]
    more = ", …" if len(examples) > _MAX_LISTED else ""
    reasons = collections.Counter(map(_reason, examples))
    listed = [f"{reason} ({n:,})" for reason, n in reasons.most_common(_MAX_REASONS)]
    return (
        "not trained on, since the answer is not at its answer_start: "
        f"{len(examples):,} of {total:,} questions ({', '.join(ids)}{more}); "
        f"{'; '.join(listed)}"
    )


def _reason(example: SquadExample) -> str:
    """Return why the first answer is not at its `answer_start`, with the remedy."""
    answer, start = example.answers[0]
    context = example.context
    if not example.misplaced:
        return "the answer has no token, only characters that the tokenizer drops"
    for count, form in _COUNTS.items() if start >= 0 else ():
        texts = (form(context), start), (form(context[start:]), 0)
        if any(text.startswith(form(answer), place) for text, place in texts):
            return f"answer_start counts {count}"
    places = [match.start() for match in re.finditer(re.escape(answer), context)]
    if not places:
        return "the context does not hold the answer; copy it from there"
    if start < 0:
        return "answer_start is below 0; write where the answer starts"
    offset = min((place - start for place in places), key=abs)
    side = "later" if offset > 0 else "earlier"
    hint = ", as where counting began at 1 or at a byte order mark" * (offset == -1)
    return f"the answer stands {abs(offset):,} characters {side}{hint}"
