"""A random sample of a text's lines, in bounded memory."""

import random

MAX_CHARACTERS = 1 << 26
"""The most characters of a sample; one of a line without spaces counts 16 times, since
sentencepiece then takes 80 bytes for it."""
_UNSPACED, _UNSPACED_COST = 64, 16


class LineSample:
    """Samples `size` lines evenly (Vitter 1985, Algorithm R).

    Each time that they have too many characters, it keeps half of them.
    """

    def __init__(
        self, size: int, seed: int, max_characters: int = MAX_CHARACTERS
    ) -> None:
        self.lines: list[str] = []
        self.num_lines = 0
        """The number of lines sampled from."""
        self._size, self._max_characters = size, max_characters
        self._num_characters = 0
        self._random = random.Random(seed)

    def add(self, line: str) -> None:
        """Take a line into the sample, or not."""
        self.num_lines += 1
        if len(self.lines) < self._size:
            self.lines.append(line)
        elif (place := self._random.randrange(self.num_lines)) < self._size:
            self._num_characters -= _cost(self.lines[place])
            self.lines[place] = line
        else:
            return
        self._num_characters += _cost(line)
        while self._num_characters > self._max_characters and len(self.lines) > 1:
            self._size = len(self.lines) // 2
            places = self._random.sample(range(len(self.lines)), self._size)
            self.lines = [self.lines[place] for place in sorted(places)]
            self._num_characters = sum(map(_cost, self.lines))


def _cost(line: str) -> int:
    is_spaced = len(line) <= _UNSPACED * (line.count(" ") + 1)
    return len(line) * (1 if is_spaced else _UNSPACED_COST)
