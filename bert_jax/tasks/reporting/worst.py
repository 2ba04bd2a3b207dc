"""The examples to list: those with the highest losses, overall and of each kind."""

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.storage.files import JsonObject
from bert_jax.tasks.predictions import Example
from bert_jax.tasks.reporting.views import Examples, Item, MarkedSpan, Passage, Section

MAX_EXAMPLES = 50
"""The number of examples with the highest losses of all."""
MAX_OF_A_KIND = 5
"""The number of further examples of each kind."""
MAX_KINDS = 40
"""The most frequent kinds, of which further examples are listed."""
MAX_CHARACTERS = 1000
"""The length of a listed text."""


class WorstExamples:
    """Finds the numbers of the examples to list."""

    def __init__(self) -> None:
        self._wrong: list[tuple[float, int]] = []
        self._by_kind: dict[Hashable, list[tuple[float, int]]] = {}

    @property
    def num_wrong(self) -> int:
        """The number of examples that were added."""
        return len(self._wrong)

    def add(self, loss: float, index: int, kinds: Iterable[Hashable] = ()) -> None:
        """Add a wrong example: its loss, its number, and what is wrong with it.

        The kinds are pairs of gold and predicted class. Of equal losses, the example
        with the lower number is the worse one.
        """
        entry = (loss, -index)
        self._wrong.append(entry)
        for kind in set(kinds):
            self._by_kind.setdefault(kind, []).append(entry)

    def indices(self) -> list[int]:
        """Return the numbers of the examples to list, the worst first."""
        kept = set(heapq.nlargest(MAX_EXAMPLES, self._wrong))
        frequent = sorted(self._by_kind.values(), key=len, reverse=True)[:MAX_KINDS]
        for entries in frequent:
            kept.update(heapq.nlargest(MAX_OF_A_KIND, entries))
        return [-index for _, index in sorted(kept, reverse=True)]

    def listed(self, entry: Callable[[int], JsonObject]) -> JsonObject:
        """Return `num_wrong`, and `worst`: an entry of each example to list."""
        entries = [{"index": i} | entry(i) for i in self.indices()]
        return {"num_wrong": self.num_wrong, "worst": entries}

    def listed_texts(
        self, examples: Sequence[Example], columns: Mapping[str, Sequence[Any]]
    ) -> JsonObject:
        """Return `listed`, each with its texts and its values of the columns."""
        return self.listed(
            lambda i: {
                "where": examples[i].where,
                "texts": [shortened(text) for text in examples[i].texts[:2]],
                **{name: column[i] for name, column in columns.items()},
            }
        )


def shortened(text: str) -> str:
    """Return a text, cut to `MAX_CHARACTERS`."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} […]"


def worst_section(
    report: JsonObject,
    note: str,
    item: Callable[[JsonObject], Item],
    unit: str = "texts",
) -> Section:
    """Return the section of the worst examples, of which some may be listed."""
    items = [item(entry) for entry in report["worst"]]
    wrong, total = report["num_wrong"], report["num_examples"]
    extent = f"{wrong:,} of {total:,} {unit} are wrong ({wrong / max(total, 1):.1%})"
    if len(items) < wrong:
        extent += f"; {len(items)} of them are listed"
    return Section("worst", "Worst examples", f"{extent}. {note}", [Examples(items)])


def passages(texts: Sequence[str]) -> list[Passage]:
    """Return a text, or both texts of a pair."""
    names = ("text",) if len(texts) == 1 else ("first text", "second text")
    return [
        Passage(name, [MarkedSpan(text)])
        for name, text in zip(names, texts, strict=True)
    ]
