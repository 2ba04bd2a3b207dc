"""What a vocabulary's normalizer takes from a text, seen line by line.

BERT's normalizer deletes control and format characters. Uncased, it also decomposes
characters and drops their marks: "é" becomes "e". Japanese and the scripts of India and
South East Asia write vowels and consonants so; a Korean syllable becomes its letters.
"""

import collections
import unicodedata
import warnings

from bert_jax.config import VocabularyConfig
from bert_jax.data.folding import without_marks
from bert_jax.data.line_sample import LineSample
from bert_jax.data.text_report import TextReport, unprinted
from bert_jax.tokenization import Tokenizer

ACCENTS = frozenset({"LATIN", "GREEK", "CYRILLIC", "COPTIC", "HEBREW", "ARABIC"})
"""Scripts whose marks are accents, or are usually not written."""
MAX_LINES = 10_000
"""The lines, of up to 10,000 characters, whose words are looked at one by one."""
NUM_SAMPLED = 1000
"""The lines that are encoded to count [UNK]."""
_MIN_FRACTION = 0.01
_SHOWN = 20
_MARKS, _JAMO = "strips marks that this text needs", "splits Hangul into letters"
_DOTLESS = "lowers I to i, which is another letter in this text"


def lost_of(word: str, kind: str) -> str:
    """Return what an uncased vocabulary does to a word, if it is more than accents."""
    if word.isascii():
        return ""
    if kind == "wordpiece" and any("가" <= character <= "힣" for character in word):
        return _JAMO
    if "ı" in word:  # Turkish, whose I is its capital
        return _DOTLESS
    base = ""
    marks = 0  # of the base
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.category(character) != "Mn":
            base, marks = character, 0
        elif unicodedata.category(base or " ").startswith("L"):
            marks += 1
            script = unicodedata.name(base, "?").split()[0]
            # Latin letters with two marks have a tone, as in Vietnamese and Yoruba.
            is_tone = script == "LATIN" and marks == 2
            if script not in ACCENTS or is_tone or _is_letter(base + character, script):
                return _MARKS
    return ""


def _is_letter(marked: str, script: str) -> bool:
    """Whether a Cyrillic or Arabic letter and a mark are a letter of their own."""
    letter = unicodedata.normalize("NFC", marked.lower())
    if script == "CYRILLIC":  # "ї", but neither "ё" and "й" nor a stress on a vowel
        is_stress = marked[-1] in "\u0300\u0301" and letter not in ("ѓ", "ќ")
        return not (letter in ("ё", "й") or is_stress)
    return letter in ("ؤ", "ئ")


class LostCharacters:
    """Looks at a text while a vocabulary is learned; then says what it has lost."""

    def __init__(self, config: VocabularyConfig) -> None:
        self._config = config
        self.as_read = TextReport()
        """What was dropped or replaced when the text was read."""
        self._num_words = 0
        self._invisible: collections.Counter[str] = collections.Counter()
        self._first_seen: dict[str, tuple[str, str]] = {}  # the text around, the place
        self._sample = LineSample(NUM_SAMPLED, config.seed, 1_000_000)
        self._lost: dict[str, collections.Counter[str]] = {}
        self._first: dict[str, str] = {}

    def add(self, line: str, place: str) -> None:
        """Look at a line, given its source's name and its place there."""
        self.as_read.text["characters"] += len(line)
        self.as_read.add("undecodable bytes", line.count("\ufffd"), place)
        for character, around, count in unprinted(line):
            self._first_seen.setdefault(character, (around, place))
            self._invisible[character] += count
        self._sample.add(line)
        if not self._config.cased and self._sample.num_lines <= MAX_LINES:
            words = line.split()
            self._num_words += len(words)
            for word in words:
                if lost := lost_of(word, self._config.kind):
                    self._first.setdefault(lost, place)
                    counter = self._lost.setdefault(lost, collections.Counter())
                    counter[word[:_SHOWN]] += 1

    def report(self, tokenizer: Tokenizer) -> TextReport:
        """Return what the vocabulary removes, and the [UNK] of a sample of the lines.

        Warn of words whose marks or syllables are lost.
        """
        report = self.as_read
        for character, count in self._invisible.items():
            around, place = self._first_seen[character]
            report.add_removed(tokenizer, (character, around, count), place)
        texts = self._sample.lines
        for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
            report.add_unknown(tokenizer, text, ids)
        for lost, counter in sorted(self._lost.items()):
            if counter.total() <= _MIN_FRACTION * self._num_words:
                continue
            word, _ = max(counter.items(), key=lambda item: (item[1], item[0]))
            letters = " ".join(unicodedata.normalize("NFD", word))
            word = word.upper() if lost == _DOTLESS else word
            changed = letters if lost == _JAMO else without_marks(word.lower())
            warnings.warn(
                f"An uncased vocabulary {lost}, in {counter.total():,} of the first "
                f"{self._num_words:,} words (first: {self._first[lost]}): {word} "
                f"becomes {changed}. Use --cased.",
                stacklevel=2,
            )
        return report
