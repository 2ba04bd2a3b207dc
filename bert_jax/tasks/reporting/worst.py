"""Which examples to list: those with the highest losses, overall and of each kind."""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from bert_jax.storage.files import JsonObject

MAX_EXAMPLES = 50
"""The number of examples with the highest losses of all."""
MAX_OF_A_KIND = 5
"""The number of further examples of each kind."""
MAX_KINDS = 40
"""The most frequent kinds, of which further examples are listed."""
MAX_CHARACTERS = 1000
"""The length of a listed text."""


class WorstExamples:
    """Keeps the numbers of the examples to list, and nothing of all others."""

    def __init__(self) -> None:
        self._overall: list[tuple[float, int]] = []
        self._by_kind: dict[Hashable, list[tuple[float, int]]] = {}
        self._counts: Counter[Hashable] = Counter()
        self.num_wrong = 0
        """The number of examples that were added."""

    def add(self, loss: float, index: int, kinds: Iterable[Hashable] = ()) -> None:
        """Add a wrong example.

        Args:
            loss: the higher, the worse.
            index: the number of the example; of equal losses, the lower comes first.
            kinds: what is wrong with it, as pairs of gold and predicted class.
        """
        entry = (loss, -index)
        self.num_wrong += 1
        _keep(self._overall, entry, MAX_EXAMPLES)
        for kind in set(kinds):
            self._counts[kind] += 1
            _keep(self._by_kind.setdefault(kind, []), entry, MAX_OF_A_KIND)

    def indices(self) -> list[int]:
        """Return the numbers of the examples to list, the worst first."""
        kept = set(self._overall)
        for kind, _ in self._counts.most_common(MAX_KINDS):
            kept.update(self._by_kind[kind])
        return [-index for _, index in sorted(kept, reverse=True)]

    def listed(self, entry: Callable[[int], JsonObject]) -> JsonObject:
        """Return `num_wrong`, and `worst`: an entry of each example to list."""
        entries = [{"index": i} | entry(i) for i in self.indices()]
        return {"num_wrong": self.num_wrong, "worst": entries}


def _keep(heap: list[tuple[float, int]], entry: tuple[float, int], size: int) -> None:
    """Add an entry to a heap of the largest ones."""
    if len(heap) < size:
        heapq.heappush(heap, entry)
    else:
        heapq.heappushpop(heap, entry)


def shortened(text: str) -> str:
    """Return a text, cut to `MAX_CHARACTERS`."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} […]"
