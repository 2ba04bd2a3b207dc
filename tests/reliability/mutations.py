"""Ways to damage the bytes of a file, each drawn from a seeded generator."""

import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

WORDS = (
    "\0",
    "\ud800",
    "\udc00x",
    "\ufeff",
    "\u2028",
    "\u0085",
    "\x0c",
    "\x1b[2J",
    "\u202e",
    "\u0661\u0662",
    "e\u0301",
    "\U0010ffff",
    "../../x",
    "/etc/passwd",
    "a" * 100_000,
    "",
    " ",
    "null",
    "NaN",
    "-1",
    "1_000",
    "0x10",
    "1e400",
    "[MASK]",
    "\r",
    "\r\n",
    "\t",
    '"',
    ",",
    "#",
    "\\",
)
"""Text that has led programs astray."""

VALUES = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "0",
    "-1",
    "1",
    "0.5",
    "1e308",
    "-1e308",
    "1e400",
    "NaN",
    "-Infinity",
    "1" + "0" * 30,
    "9" * 400,
    "9" * 5000,
    str(2**31),
    str(2**32 + 1),
    str(2**63),
    str(2**64),
    "[" * 100_000,
    "[" * 300 + "]" * 300,
    '{"a": ' * 300 + "1" + "}" * 300,
    "[null]",
    "[[]]",
    "[1, 2, 3]",
    '["a"]',
    '{"a": 1}',
    *(json.dumps(word) for word in WORDS),
)
"""JSON values, as text, that a reader may not have been written for."""

_HERE = "@@here@@"


def flip(content: bytes, generator: random.Random, bits: int = 1) -> bytes:
    """Other bits, at least one."""
    changed = bytearray(content or b"\0")
    for _ in range(bits):
        place = generator.randrange(len(changed) * 8)
        changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _cut(content: bytes, generator: random.Random) -> tuple[int, int]:
    """A span, most often a short one."""
    start = generator.randint(0, len(content))
    length = int(2 ** generator.uniform(0, max(1, len(content)).bit_length()))
    return start, min(len(content), start + length)


def _insert(content: bytes, generator: random.Random) -> bytes:
    place = generator.randint(0, len(content))
    number = generator.choice((1, 1, 2, 8, 300))
    return content[:place] + generator.randbytes(number) + content[place:]


def _insert_word(content: bytes, generator: random.Random) -> bytes:
    place = generator.randint(0, len(content))
    word = generator.choice(WORDS).encode("utf-8", "surrogatepass")
    return content[:place] + word + content[place:]


def _remove(content: bytes, generator: random.Random) -> bytes:
    start, stop = _cut(content, generator)
    return content[:start] + content[stop:]


def _repeat(content: bytes, generator: random.Random) -> bytes:
    start, stop = _cut(content, generator)
    times = generator.choice((2, 2, 3, 20))
    return content[:start] + content[start:stop] * times + content[stop:]


def _splice(content: bytes, generator: random.Random) -> bytes:
    start, stop = _cut(content, generator)
    other = generator.randint(0, len(content))
    return content[:other] + content[start:stop] + content[other + stop - start :]


def _truncate(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randint(0, len(content))]


def _fill(content: bytes, generator: random.Random) -> bytes:
    start, stop = _cut(content, generator)
    byte = generator.choice((b"\0", b"\xff", b"\x7f", b"\x80", b" ", b"9"))
    return content[:start] + byte * (stop - start) + content[stop:]


def _number(content: bytes, generator: random.Random) -> bytes:
    """Another number in place of one that is written out."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content))
    if not found:
        return _fill(content, generator)
    match = generator.choice(found)
    numbers = [value for value in VALUES if value[0] in "-0123456789N"]
    word = generator.choice(numbers).encode()
    return content[: match.start()] + word + content[match.end() :]


def damage_bytes(content: bytes, generator: random.Random) -> bytes:
    """Any file, by its bytes alone."""
    ways: Sequence[Mutation] = (
        flip,
        functools.partial(flip, bits=4),
        _insert,
        _insert_word,
        _remove,
        _repeat,
        _splice,
        _truncate,
        _fill,
        _number,
    )
    return generator.choice(ways)(content, generator)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value inside of a JSON value."""
    found = [path]
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value[:50])
    for name, part in items:
        found += _places(part, (*path, name))
    return found


def damage_json(content: bytes, generator: random.Random) -> bytes:
    """A JSON file: a value replaced or taken away, a key there twice, or its bytes."""
    if generator.random() < 0.3:
        return damage_bytes(content, generator)
    values = {"whole": json.loads(content)}
    # The shallow places are few, and as likely as all that lie deeper.
    by_depth: dict[int, list[tuple[Any, ...]]] = {}
    for path in _places(values)[1:]:
        by_depth.setdefault(len(path), []).append(path)
    *way, last = generator.choice(by_depth[generator.choice(sorted(by_depth))])
    holder: Any = values
    for name in way:
        holder = holder[name]
    kind = generator.random()
    if kind < 0.6 or not way:
        holder[last] = _HERE
    elif kind < 0.85:
        del holder[last]
    elif isinstance(holder, dict):
        return _twice(values["whole"], generator)
    else:
        holder.insert(last, _HERE)
    written = json.dumps(values["whole"], indent=generator.choice((None, 2)))
    value = generator.choice(VALUES)
    return written.replace(json.dumps(_HERE), value, 1).encode()


def _twice(values: Any, generator: random.Random) -> bytes:
    """A key there twice, with another value first."""
    written = json.dumps(values)
    keys = list(re.finditer(r'"[^"\\]*": ', written))
    if not keys:
        return written.encode()
    match = generator.choice(keys)
    added = f"{match[0]}{generator.choice(VALUES[:20])}, "
    return (written[: match.start()] + added + written[match.start() :]).encode()


def damage_lines(
    content: bytes, generator: random.Random, damage: Mutation = damage_bytes
) -> bytes:
    """A file of lines: one damaged, doubled, moved, dropped, or the bytes of all."""
    if generator.random() < 0.3:
        return damage_bytes(content, generator)
    lines = content.split(b"\n")
    place = generator.randrange(len(lines))
    kind = generator.randrange(5)
    if kind < 2 and lines[place]:
        lines[place] = damage(lines[place], generator)
    elif kind == 2:
        lines.insert(place, generator.choice(lines))
    elif kind == 3:
        del lines[place]
    else:
        word = generator.choice(WORDS).encode("utf-8", "surrogatepass")
        fields = re.split(rb"([\t ,])", lines[place])
        fields[generator.randrange(len(fields))] = word
        lines[place] = b"".join(fields)
    return b"\n".join(lines)


def damage_json_lines(content: bytes, generator: random.Random) -> bytes:
    """A file with a JSON value in each line."""
    return damage_lines(content, generator, damage_json)


def damage_safetensors(content: bytes, generator: random.Random) -> bytes:
    """A safetensors file, most often its header, with the right length or another."""
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + length], content[8 + length :]
    kind = generator.random()
    if kind < 0.1:
        return damage_bytes(content, generator)
    if kind < 0.2:
        size = generator.choice((0, 1, 2, length - 1, length + 1, 2**31, 2**63, -1))
        return size.to_bytes(8, "little", signed=size < 0) + header + rest
    header = damage_json(header.rstrip(), generator)
    return len(header).to_bytes(8, "little") + header + rest


def damage_npy(content: bytes, generator: random.Random) -> bytes:
    """A NumPy file, most often its header."""
    if generator.random() < 0.1:
        return damage_bytes(content, generator)
    length = 10 + int.from_bytes(content[8:10], "little")
    header, rest = content[10:length], content[length:]
    kind = generator.random()
    if kind < 0.3:
        return damage_bytes(content[:length], generator) + rest
    header = damage_lines(header, generator) if kind < 0.5 else _header(generator)
    # As long as before, so that the file has the size that the manifest says.
    header = header[: length - 10].ljust(length - 10)
    return content[:10] + header + rest


def _header(generator: random.Random) -> bytes:
    """A header that is Python, or nearly."""
    kinds = ("'<u2'", "'|O'", "object", "'<i8'", "[]", "[('a', '<u2', (9,))]", "'|V0'")
    shapes = ("()", "(-1,)", "(10**18,)", "(2.5,)", "[3]", "(True,)", "('3',)", "None")
    extra = ("", ", 'more': 1", ", [1]: 2", "}}", " ((((", "\\", "'''", "\n\n  x")
    kind, shape, more = map(generator.choice, (kinds, shapes, extra))
    order = generator.choice(("False", "True", "1", "None"))
    parts = f"'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}{more}"
    return f"{{{parts}}}".encode()
