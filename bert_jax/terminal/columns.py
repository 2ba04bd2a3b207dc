"""Lines of aligned columns, for a terminal or a log of 80 characters a line."""

from collections.abc import Sequence

GAP = "  "


def width(text: str) -> int:
    """Return the cells that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, size: int, left: bool) -> str:
    """Return a text filled up with spaces on the right, if `left`, or on the left."""
    space = " " * (size - width(text))
    return text + space if left else space + text


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines: the first column from the left, the others to the right."""
    sizes = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            padded(cell, size, i == 0)
            for i, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ).rstrip()
        for row in rows
    ]


def shortened(text: str, size: int) -> str:
    """Return a text of at most `size` characters, its middle left out if need be."""
    half = (size - 1) // 2
    return text if len(text) <= size else f"{text[: size - 1 - half]}…{text[-half:]}"
