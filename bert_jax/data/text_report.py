"""What happened to the text: one report of `vocab`, `prepare` and `inspect`.

To count something, call `report.add("duplicate documents", 3, "a.txt:12")`: a plural
noun, a number, and the source's name and line (never a path of this machine). It is
then added up over chunks, stored in the manifest, and printed by `lines`. To warn of
it past a threshold, add it to `warnings`, with the remedy.
"""

import collections
import dataclasses
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from bert_jax.storage.files import JsonObject
from bert_jax.tokenization import Tokenizer

UNKNOWN = "[UNK]"
UNKNOWN_CHARACTER, LONG_WORD = "unknown characters", "words that are too long"
"""The causes of [UNK]."""
DIVIDED, SINGLE = "divided sentences", "documents of one sentence"
CUT, RANDOM, PADDING = "tokens in no row", "random pairs", "padding"
READ, NO_NEIGHBOUR = "documents that were read", "sentences without a neighbour"
KEEPABLE = "control characters that unigram keeps, or has a space for"
REPEATED = "sources with the text of an earlier one"
JOINERS, CONTROLS = "invisible joiners", "control characters"
_JOINERS = "\u200c\u200d\u2060"
_MANY_UNKNOWN, _ONLY_UNKNOWN = 0.02, 2 / 3
_LIMITS = (
    ("dropped", "undecodable bytes", "characters", 0.001,
     "text is U+FFFD, for what was not UTF-8; convert the original text by iconv"),
    ("dropped", JOINERS, "characters", 0.001,
     "characters are joiners, which this vocabulary removes; `bert-jax vocab --kind "
     "unigram --cased` keeps them, or has a space for a non-joiner"),
    ("dropped", CONTROLS, "characters", 0.01,
     "characters are control characters, which this vocabulary removes; clean the "
     "text, or use `bert-jax vocab --kind unigram --cased`, which has a space for "
     "U+200B and keeps private use"),
    ("dropped", NO_NEIGHBOUR, "sentences", 0.3,
     "sentences have no neighbour in their document; use --pairs none"),
    ("dropped", "duplicate documents", READ, 0.5,
     "documents are copies of others; look whether --input holds a text twice"),
    ("text", CUT, "tokens", 0.3, "tokens are cut; raise --sequence-length"),
    ("text", RANDOM, "pairs", 0.7,
     "pairs are random, because documents, or rows, have too few sentences to learn "
     "what follows; use --pairs none, or a larger --sequence-length"),
    ("text", PADDING, "positions", 0.5,
     "positions are padding; use --pack, or a smaller --sequence-length"),
)  # fmt: skip
"""What is counted, of what, the fraction past which it is a problem, and the remedy."""
_LEARN = "learn a vocabulary from this text by `bert-jax vocab`"
_NUM_EXAMINED, _EXAMINED_CHARACTERS = 1000, 10_000
"""How many [UNK] have their cause looked up, and in how much of a text."""
_KEPT_CHARACTERS, _SHOWN_CHARACTERS = 100, 8
_CONTEXT = 20
_LENGTH_BITS = 5  # lengths are exact to one part in 16

TokenCounts = collections.Counter[str]
Unprinted = tuple[str, str, int]
"""A character that is not printed, the text around it, and its count."""


@dataclasses.dataclass
class TextReport:
    """Counts of a text or of a piece of it; the counts of all pieces add up."""

    dropped: TokenCounts = field(default_factory=TokenCounts)
    """What was dropped, removed or replaced, and how much of it."""
    text: TokenCounts = field(default_factory=TokenCounts)
    """What there was: tokens, [UNK], pairs, documents of one sentence, …"""
    unknown: TokenCounts = field(default_factory=TokenCounts)
    """[UNK] by cause, of those that were examined."""
    unknown_characters: TokenCounts = field(default_factory=TokenCounts)
    """The commonest characters that are [UNK], of those that were examined."""
    document_tokens: TokenCounts = field(default_factory=TokenCounts)
    """The number of documents by length, whose first bits alone are kept."""
    sentence_tokens: TokenCounts = field(default_factory=TokenCounts)
    """The same of sentences."""
    first: dict[str, str] = field(default_factory=dict)
    """The place of the first of each kind, such as "a.txt:12"."""

    def __post_init__(self) -> None:
        self._is_known: dict[str, bool] = {}
        self._is_removed: dict[str, bool] = {}

    def add(self, kind: str, number: int = 1, where: str = "") -> None:
        """Count what was dropped; `where` is kept if it is the first place."""
        if number:
            self.dropped[kind] += number
            if where:
                self.first.setdefault(kind, where)

    def add_lengths(self, name: str, lengths: Iterable[int]) -> None:
        """Count lengths in the histogram of this name."""
        for length, number in collections.Counter(lengths).items():
            bits = max(length.bit_length() - _LENGTH_BITS, 0)
            getattr(self, name)[str(length >> bits << bits)] += number

    def update(self, other: "TextReport") -> None:
        """Add the counts of another part; of two places, keep the smaller."""
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for kind, place in other.first.items():
            self.first[kind] = min(self.first.get(kind, place), place)

    def as_json(self) -> JsonObject:
        """Return the report as JSON; rare unknown characters are left out."""
        values = {name: dict(sorted(getattr(self, name).items())) for name in _COUNTERS}
        common = dict(self._commonest(_KEPT_CHARACTERS))
        return values | {"unknown_characters": common, "first": self.first}

    def as_manifest(self) -> JsonObject:
        """Return the entries of a dataset's manifest."""
        values = self.as_json()
        return {"dropped": values.pop("dropped"), "text": values}

    @classmethod
    def of_manifest(cls, manifest: JsonObject) -> "TextReport":
        """Return the report of a manifest; of older versions, only what was dropped."""
        text = manifest.get("text", {})
        return cls.from_json(text | {"dropped": manifest["dropped"]})

    @classmethod
    def from_json(cls, values: JsonObject) -> "TextReport":
        """Return the report that `as_json` gave.

        Raise ValueError, TypeError or AttributeError if it is no such report.
        """
        first = values.get("first", {})
        report = cls(first={kind: str(place) for kind, place in first.items()})
        for name in _COUNTERS:
            for kind, number in values.get(name, {}).items():
                if type(number) is not int or number < 0:
                    raise ValueError(f"{name} of the text has no count of {kind!r:.80}")
                getattr(report, name)[kind] = number
        return report

    def add_tokens(
        self, tokenizer: Tokenizer, text: str, ids: Sequence[int]
    ) -> list[str]:
        """Count a text's [UNK] and removed characters; return the kinds that it has."""
        kinds = []
        self.text["characters"] += len(text)
        for unseen in unprinted(text):
            if kind := self.add_removed(tokenizer, unseen):
                kinds.append(kind)
        return kinds + self.add_unknown(tokenizer, text, ids)

    def add_unknown(
        self, tokenizer: Tokenizer, text: str, ids: Sequence[int]
    ) -> list[str]:
        """Count a text's [UNK] alone; return their kind if it has any."""
        self.text["tokens"] += len(ids)
        if tokenizer.unk_id not in ids:
            return []
        self.text[UNKNOWN] += list(ids).count(tokenizer.unk_id)
        if self.unknown.total() >= _NUM_EXAMINED:
            return [UNKNOWN]
        text, known = text[:_EXAMINED_CHARACTERS], self._is_known
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
        return [UNKNOWN]

    def add_removed(self, tokenizer: Tokenizer, unseen: Unprinted, at: str = "") -> str:
        """Count a character if a text has the same tokens without it.

        Return its kind, or "" if it is not removed; `at` is its place.
        """
        character, around, number = unseen
        if character not in self._is_removed:
            # Between two copies, because a space at an end leaves no trace.
            word = around.replace(character, "").strip() or "a"
            texts = [word + character + word, word + word, character]
            ids, others, alone = tokenizer.encode_batch(texts)
            # A word that is [UNK] has the same tokens without a letter of it.
            is_known = tokenizer.unk_id not in alone
            self._is_removed[character] = ids == others and is_known
        if not self._is_removed[character]:
            return ""
        kind = JOINERS if character in _JOINERS else CONTROLS
        self.add(kind, number, at)
        if character == "\u200b" or unicodedata.category(character) == "Co":
            self.text[KEEPABLE] += number
        return kind

    def _commonest(self, number: int) -> list[tuple[str, int]]:
        """Return the commonest unknown characters; equal ones in a fixed order."""
        items = self.unknown_characters.items()
        return sorted(items, key=lambda item: (-item[1], item[0]))[:number]

    def _share(self, number: int, of: str) -> float:
        return number / max(self.text[of], 1)

    def lines(self) -> list[str]:
        """Describe the text in a few lines, for `say`."""
        lines, text = [], self.text
        if documents := self.document_tokens:
            sentences = self.sentence_tokens
            sizes = (
                f"{documents.total():,} documents of {_median(documents):,} tokens, "
                f"{sentences.total():,} sentences of {_median(sentences):,} tokens "
                "(medians)"
            )
            parts = [sizes, *self._numbers(text, (SINGLE, DIVIDED))]
            lines.append(f"text: {', '.join(parts)}.")
        for repeated in self._numbers(text, (REPEATED,)):
            lines.append(
                f"repeated: {repeated}; leave them out, or pass --deduplicate."
            )
        if text[UNKNOWN]:
            lines.append(f"[UNK]: {self._unknown()}{self._place(UNKNOWN)}.")
        if text[CUT]:
            share = self._share(text[CUT], "tokens")
            lines.append(
                f"cut: {text[CUT]:,} tokens are in no row, {share:.1%}: a pair takes "
                "sentences until they fill a row and is cut at random ends, as in BERT."
            )
        if parts := self._numbers(self.dropped, sorted(self.dropped)):
            lines.append(f"dropped or replaced: {', '.join(parts)}.")
        return lines

    def _numbers(self, counts: TokenCounts, kinds: Iterable[str]) -> list[str]:
        return [f"{counts[k]:,} {k}{self._place(k)}" for k in kinds if counts[k]]

    def _place(self, kind: str) -> str:
        return f" (first: {self.first[kind]})" if kind in self.first else ""

    def _unknown(self) -> str:
        total = max(self.unknown.total(), 1)
        causes = (f"{n / total:.0%} {kind}" for kind, n in self.unknown.most_common())
        listed = " ".join(name for name, _ in self._commonest(_SHOWN_CHARACTERS))
        more = f", most often {listed}" if listed else ""
        share = self._share(self.text[UNKNOWN], "tokens")
        by = ", ".join(causes)  # none is known of a word that has no token
        return f"{share:.1%} of the tokens{f', by {by}' if by else ''}{more}"

    def warnings(self, remedy: str = _LEARN, packed: bool = False) -> list[str]:
        """Return a line, with the remedy, for each count past its threshold.

        The `remedy` is for many unknown characters; `packed` rows hold several pairs.
        """
        lines = {
            kind: f"{share:.1%} of the {problem}."
            for group, kind, of, limit, problem in _LIMITS
            if (share := self._share(getattr(self, group)[kind], of)) > limit
        }
        if NO_NEIGHBOUR in lines or PADDING in lines:  # longer rows would not help
            lines.pop(CUT, None)
        if CONTROLS in lines and 2 * self.text[KEEPABLE] < self.dropped[CONTROLS]:
            lines[CONTROLS] = lines[CONTROLS].partition(", or use")[0] + "."
        if PADDING in lines and packed:
            lines[PADDING] = lines[PADDING].replace("--pack, or ", "")
        if PADDING in lines and RANDOM in lines:
            longer = ", or a larger --sequence-length"
            lines[RANDOM] = lines[RANDOM].replace(longer, "")
        if self._share(self.text[UNKNOWN], "tokens") > _MANY_UNKNOWN:
            lines[UNKNOWN] = self._unknown_problem(remedy)
        return [*lines.values()]

    def require_sense(self) -> None:
        """Raise ValueError if two thirds of the tokens or more are [UNK]."""
        if self._share(self.text[UNKNOWN], "tokens") >= _ONLY_UNKNOWN:
            raise ValueError(self._unknown_problem())

    def _unknown_problem(self, remedy: str = _LEARN) -> str:
        if self.unknown[LONG_WORD] > self.unknown[UNKNOWN_CHARACTER]:
            remedy = "text without spaces needs `bert-jax vocab --kind unigram`"
        elif any(unicodedata.category(c) == "Cc" for c, _ in self._commonest(1)):
            remedy = "remove control characters from the text"
        return f"{UNKNOWN} is {self._unknown()}; {remedy}."


_COUNTERS = [f.name for f in dataclasses.fields(TextReport) if f.name != "first"]


def _median(histogram: TokenCounts) -> int:
    lengths = sorted(histogram, key=int)
    totals = itertools.accumulate(histogram[length] for length in lengths)
    middle = histogram.total() / 2
    return next(
        int(n) for n, sum_ in zip(lengths, totals, strict=True) if sum_ >= middle
    )


def unprinted(text: str) -> Iterator[Unprinted]:
    """Yield each character of a text that is not printed."""
    for character in [] if text.isprintable() else sorted(set(text)):
        # Other control characters that Python calls white space are none to BERT.
        is_space = character in "\t\n\r" or unicodedata.category(character)[0] == "Z"
        if not (character.isprintable() or is_space):
            place = text.index(character)
            around = text[max(place - _CONTEXT, 0) : place + _CONTEXT]
            yield character, around, text.count(character)


def count_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> TextReport:
    """Return the tokens and [UNK] of texts, with their causes, and what is removed."""
    report = TextReport()
    for text, ids in zip(texts, tokenizer.encode_each(texts), strict=True):
        report.add_tokens(tokenizer, text, ids)
    return report
