"""BERT's tokenizer by the published rules of the 2018 code, stated plainly once more.

Its FullTokenizer cleans, parts Chinese characters, lowers and strips accents, parts
punctuation, then takes the longest pieces first. Speed is no aim here.
"""

import unicodedata
from collections.abc import Iterator

Word = list[tuple[str, int]]
"""Characters, each with the place in the text that it came from."""

CHINESE = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def is_chinese(character: str) -> bool:
    code = ord(character)
    return code >= 0x3400 and any(first <= code <= last for first, last in CHINESE)


def is_control(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def is_punctuation(character: str) -> bool:
    ascii_symbol = "!" <= character <= "~" and not character.isalnum()
    return ascii_symbol or unicodedata.category(character).startswith("P")


def split_at_white_space(text: str) -> Iterator[Word]:
    """Words of the cleaned text; a Chinese character is a word of its own."""
    word: Word = []
    for place, character in enumerate(text):
        if is_control(character):
            continue
        alone = is_chinese(character)
        if (alone or character.isspace()) and word:
            yield word
            word = []
        if alone:
            yield [(character, place)]
        elif not character.isspace():
            word.append((character, place))
    if word:
        yield word


def lowered(word: Word) -> Word:
    """By Python's rules for the whole word, in which a last sigma is ς."""
    lower = iter("".join(character for character, _ in word).lower())
    return [(next(lower), place) for c, place in word for _ in c.lower()]


def without_accents(word: Word) -> Word:
    """Decomposed (NFD), then without the marks that take no space."""
    parts = [(d, place) for c, place in word for d in unicodedata.normalize("NFD", c)]
    start = 0
    for end in range(1, len(parts) + 1):
        # Marks up to the next base character are sorted by their class.
        if end == len(parts) or not unicodedata.combining(parts[end][0]):
            marks = parts[start:end]
            parts[start:end] = sorted(marks, key=lambda p: unicodedata.combining(p[0]))
            start = end
    return [part for part in parts if unicodedata.category(part[0]) != "Mn"]


def split_at_punctuation(word: Word) -> Iterator[Word]:
    start = 0
    for i, (character, _) in enumerate(word):
        if is_punctuation(character):
            yield word[start:i]
            yield word[i : i + 1]
            start = i + 1
    yield word[start:]


def basic_words(text: str, cased: bool) -> list[Word]:
    words = [
        part
        for word in split_at_white_space(text)
        for part in split_at_punctuation(
            word if cased else without_accents(lowered(word))
        )
    ]
    return [word for word in words if word]


def pieces(word: Word, ids: dict[str, int]) -> list[tuple[int, int, int]]:
    """Id, start and end of each piece: the longest first, all of the word or none."""
    unknown = [(ids["[UNK]"], word[0][1], word[-1][1] + 1)]
    if len(word) > 200:
        return unknown
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = "".join(character for character, _ in word[start:end])
            piece = "##" * (start > 0) + piece
            if piece in ids:
                found.append((ids[piece], word[start][1], word[end - 1][1] + 1))
                start = end
                break
        else:
            return unknown
    return found


def encode_2018(text: str, cased: bool, ids: dict[str, int]) -> list[tuple[int, ...]]:
    return [p for word in basic_words(text, cased) for p in pieces(word, ids)]


def words_2018(text: str, cased: bool = False) -> list[str]:
    return ["".join(c for c, _ in word) for word in basic_words(text, cased)]
