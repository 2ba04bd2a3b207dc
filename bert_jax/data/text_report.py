"""What happened to the text: one report of `vocab`, `prepare` and `inspect`.

To count something, call `report.add("duplicate documents", 3, "a.txt:12")`: a plural
noun, a number, and the source's name and line (never a path of this machine). It is
then added up over chunks, stored in the manifest, and printed by `lines`. To warn of
it past a threshold, add it to `warnings`, with the remedy.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from bert_jax.storage.files import JsonObject
from bert_jax.tokenization import Tokenizer

UNKNOWN_CHARACTER, LONG_WORD = "unknown characters", "words that are too long"
"""The causes of [UNK]."""
_EXAMINED_TEXTS, _EXAMINED_CHARACTERS = 100, 10_000
"""Texts with [UNK] whose causes are looked for, and the characters of each."""
_KEPT_CHARACTERS, _SHOWN_CHARACTERS = 100, 8
_MANY_UNKNOWN, _ONLY_UNKNOWN = 0.02, 0.8


def _counter() -> "collections.Counter[str]":
    return collections.Counter()


@dataclasses.dataclass
class TextReport:
    """Counts of a text, or of a part of it; those of all parts add up."""

    dropped: collections.Counter[str] = dataclasses.field(default_factory=_counter)
    """What was dropped, removed or replaced, and how much of it."""
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    """The place of the first of each kind, such as "a.txt:12"."""
    text: collections.Counter[str] = dataclasses.field(default_factory=_counter)
    """What there was: tokens, [UNK], documents of one sentence, …"""
    unknown: collections.Counter[str] = dataclasses.field(default_factory=_counter)
    """[UNK] by cause, of those that were examined."""
    unknown_characters: collections.Counter[str] = dataclasses.field(
        default_factory=_counter
    )
    """The commonest characters that are [UNK], of those that were examined."""

    def add(self, kind: str, number: int = 1, where: str = "") -> None:
        """Count what was dropped; `where` is kept if it is the first place."""
        if number:
            self.dropped[kind] += number
            if where:
                self.first.setdefault(kind, where)

    def update(self, other: "TextReport") -> None:
        """Add the counts of another part; the places of this part come first."""
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.first = other.first | self.first

    def as_json(self) -> JsonObject:
        """Return the report as JSON; rare unknown characters are left out."""
        values = {name: dict(getattr(self, name)) for name in _COUNTERS}
        common = self.unknown_characters.most_common(_KEPT_CHARACTERS)
        return values | {"unknown_characters": dict(common), "first": self.first}

    @classmethod
    def from_json(cls, values: JsonObject) -> "TextReport":
        """Return the report that `as_json` gave.

        Raises:
            ValueError, TypeError, AttributeError: it is no such report.
        """
        report = cls(first=dict(values.get("first", {})))
        for name in _COUNTERS:
            for kind, number in values.get(name, {}).items():
                if type(number) is not int or number < 0:
                    raise ValueError(f"{name} of the text has no count of {kind!r:.80}")
                getattr(report, name)[kind] = number
        return report

    def add_unknown(
        self,
        tokenizer: Tokenizer,
        texts: Iterable[str],
        encoded: Iterable[Sequence[int]],
    ) -> None:
        """Count the tokens of texts, those that are [UNK], and why some of these are.

        Args:
            encoded: the ids of each text.
        """
        examined, known = 0, dict[str, bool]()
        for text, ids in zip(texts, encoded, strict=True):
            self.text["tokens"] += len(ids)
            number = list(ids).count(tokenizer.unk_id)
            self.text["[UNK]"] += number
            if number and examined < _EXAMINED_TEXTS:
                examined += 1
                self._examine(tokenizer, text[:_EXAMINED_CHARACTERS], known)

    def _examine(self, tokenizer: Tokenizer, text: str, known: dict[str, bool]) -> None:
        """Count the causes of [UNK] in a text; `known` remembers characters."""
        encoding = tokenizer.encode(text)
        spans = encoding.offsets[encoding.ids == tokenizer.unk_id].tolist()
        for start, end in spans:
            if tokenizer.word_limit and end - start > tokenizer.word_limit:
                self.unknown[LONG_WORD] += 1
                continue
            self.unknown[UNKNOWN_CHARACTER] += 1
            for character in text[start:end]:
                if character not in known:
                    # Twice: as the first of a word, and inside of it.
                    (ids,) = tokenizer.encode_batch([2 * character])
                    known[character] = tokenizer.unk_id not in ids
                if not known[character]:
                    self.unknown_characters[character] += 1

    @property
    def unknown_share(self) -> float:
        """The fraction of the tokens that are [UNK]."""
        return self.text["[UNK]"] / max(self.text["tokens"], 1)

    def lines(self) -> list[str]:
        """Describe the text in a few lines, for `say`."""
        lines = []
        if self.text["[UNK]"]:
            lines.append(
                f"{self.unknown_share:.1%} of the tokens are [UNK]: {self._causes()}."
            )
        if self.dropped:
            parts = (
                f"{number:,} {kind}"
                + (f" (first: {self.first[kind]})" if kind in self.first else "")
                for kind, number in sorted(self.dropped.items())
            )
            lines.append(f"dropped or replaced: {', '.join(parts)}.")
        return lines

    def _causes(self) -> str:
        total = max(sum(self.unknown.values()), 1)
        causes = (f"{n / total:.0%} {kind}" for kind, n in self.unknown.most_common())
        common = self.unknown_characters.most_common(_SHOWN_CHARACTERS)
        listed = " ".join(character for character, _ in common)
        return ", ".join(causes) + (f", most often {listed}" if listed else "")

    def warnings(self) -> list[str]:
        """Return a line, with the remedy, for each count past its threshold."""
        return [self._unknown_problem()] if self.unknown_share > _MANY_UNKNOWN else []

    def require_sense(self) -> None:
        """Raise ValueError if nearly all tokens are [UNK]."""
        if self.unknown_share >= _ONLY_UNKNOWN:
            raise ValueError(self._unknown_problem())

    def _unknown_problem(self) -> str:
        problem = (
            f"{self.unknown_share:.0%} of the tokens are [UNK]: {self._causes()}; "
        )
        if self.unknown[LONG_WORD] > self.unknown[UNKNOWN_CHARACTER]:
            return problem + (
                "text without spaces needs `bert-jax vocab --kind unigram`."
            )
        return problem + "learn a vocabulary of this text by `bert-jax vocab`."


_COUNTERS = ("dropped", "text", "unknown", "unknown_characters")


def count_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> TextReport:
    """Return the tokens and [UNK] of texts, with their causes.

    `warnings` of the result is empty, or holds a line with the remedy.
    """
    report = TextReport()
    report.add_unknown(tokenizer, texts, tokenizer.encode_batch(texts))
    return report
