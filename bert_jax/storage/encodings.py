"""The encoding of text, and what bytes are that are no text."""

import codecs
import json
import re

HEAD_BYTES = 1 << 16
"""How much of a file tells what it holds."""
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16's, with which it begins
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_EXTRACT = "extract its text, for example by pandoc or pdftotext"
_KINDS = (
    (rb"\x1f\x8b\x08", "gzip data", "give it a name in .gz"),
    (rb"\x28\xb5\x2f\xfd", "zstd data", "give it a name in .zst"),
    (rb"BZh[1-9]1AY", "bzip2 data", "unpack it"),
    (rb"\xfd7zXZ\x00", "xz data", "unpack it"),
    (rb"PK\x03\x04", "a zip archive, as are .docx, .odt and .epub", _EXTRACT),
    (rb"7z\xbc\xaf|\x04\x22\x4d\x18|Rar!\x1a|.{257}ustar", "an archive", "unpack it"),
    (rb"%PDF-", "PDF", _EXTRACT),
    (rb"%!PS", "PostScript", _EXTRACT),
    (rb"\xd0\xcf\x11\xe0|\{\\rtf", "a document of a word processor", _EXTRACT),
    (rb"PAR1[\x15\x19]", "Parquet", "give it a name in .parquet"),
    # A text may begin with one of the names, but not go on with a control character.
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a.{0,6}\0", "an image or sound", "leave it out"),
    (rb"RIFF.{3}[\0-\x1f]W", "an image or sound", "leave it out"),
    (rb"\x7fELF|SQLite format 3\0|\x93NUMPY", "binary data", "leave it out"),
)
_NO_PROSE = (
    (
        # (?>…) gives no comment back: many are read once, and each ends at its own -->.
        rb"(?is)\s*(?>(<!--.*?-->\s*)*)(<!doctype|<html|<(head|body)(\s[^<>]*=[^<>]*)?>|"
        rb"<\?xml|<\w[^\s<>]*\s[^<>]*\bxmlns[:=]|WARC/)",
        "HTML, XML or WARC",
        _EXTRACT,
    ),
    (rb"\s*<doc id=", "of WikiExtractor", "give what it writes with --json"),
    (rb'\s*(\[\s*\{\s*"|\{\s*\n\s*"[^"]*"\s*:)', "JSON", "give it a name in .json"),
)
_OBJECT = re.compile(rb'\s*\{\s*"[^"]*"\s*:\s*["\[{\d]')
_SEVEN_BITS = (
    (rb"\x1b\$\)C", "ISO-2022-KR"),
    (rb"\x1b\$\)[AG]", "ISO-2022-CN"),
    (rb"\x1b(\$[@B]|\$\(D|\([IJ])", "ISO-2022-JP"),
)
"""What switches to other characters in encodings whose bytes are all ASCII."""
_MANY = 4
"""As many times more characters of UTF-8 than others tell that a text is UTF-8."""
_MIN_CONTROLS = 16
# Not those of white space, nor that of terminals.
_CONTROLS = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})


def encoding_of(head: bytes, name: str) -> str:
    """Return the encoding that a byte order mark names; "utf-8" without one.

    Raise ValueError if `head`, the first HEAD_BYTES of a file, is no text, or text in
    UTF-16 or UTF-32 without a mark.
    """
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for start, what, remedy in _KINDS:
        if re.match(start, head, re.DOTALL):
            raise ValueError(f"{name} is {what}, whatever its name says; {remedy}.")
    for switch, encoding in _SEVEN_BITS:
        if head.isascii() and re.search(switch, head):
            raise ValueError(
                f"{name} is in {encoding}; convert it by `iconv -f {encoding} -t "
                "UTF-8`."
            )
    num_controls = len(head) - len(head.translate(None, _CONTROLS))
    if num_controls and (encoding := _wide_encoding(head)):
        raise ValueError(
            f"{name} seems to be {encoding} without a byte order mark; convert it, for "
            f"example by `iconv -f {encoding} -t UTF-8`."
        )
    if num_controls > max(len(head) / 10, _MIN_CONTROLS):
        raise ValueError(f"{name} is binary data, not text; leave it out.")
    return "utf-8"


def require_prose(head: bytes, name: str) -> None:
    """Raise ValueError if a file's first bytes are markup, or JSON."""
    head = head.removeprefix(codecs.BOM_UTF8)
    for start, what, remedy in _NO_PROSE:
        if re.match(start, head):
            raise ValueError(f"{name} is {what}, not plain text; {remedy}.")
    lines = head.splitlines()
    lines = [line for line in (lines[:-1] or lines) if line.strip()]
    # Of a long line, the head has the beginning alone; UTF-16 has half as many bytes.
    is_cut = len(lines) == 1 and len(head) > HEAD_BYTES // 4
    if lines and (all(map(is_object, lines)) or (is_cut and _OBJECT.match(head))):
        raise ValueError(f"{name} holds JSON objects; give it a name in .jsonl.")


def is_object(line: bytes) -> bool:
    """Return whether a line is a JSON object, but for bytes that are not UTF-8."""
    try:
        text = line.lstrip().decode(errors="replace")
        return text.startswith("{") and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def remedy_of(content: bytes, place: int) -> str:
    """Return what converts text of which the byte at a place is not UTF-8."""
    marked = (e[:6].upper() for mark, e in _MARKS.items() if content.startswith(mark))
    encoding = next(marked, "") or _wide_encoding(content[:HEAD_BYTES])
    text = content.decode(errors="replace")
    num_lost, num_ascii = text.count("\ufffd"), len(text.encode("ascii", "ignore"))
    if not encoding and len(text) - num_ascii - num_lost > _MANY * num_lost:
        return (
            "the characters around it are UTF-8: correct it, or drop such bytes by "
            "`iconv -c -f UTF-8 -t UTF-8`"
        )
    around = content[max(place - 200, 0) : place + 200]
    others = sum(byte >= 0x80 for byte in around)
    letters = sum(byte < 0x80 and chr(byte).isalpha() for byte in around)
    if not encoding and others > letters:
        return (
            "convert the file by `iconv -f ENCODING -t UTF-8`, with its encoding, such "
            "as WINDOWS-1251, GB18030, SHIFT_JIS or EUC-KR"
        )
    encoding = encoding or "WINDOWS-1252"
    return (
        f"convert the file, for example by `iconv -f {encoding} -t UTF-8` if it is "
        f"{encoding}"
    )


def _wide_encoding(content: bytes) -> str:
    """Return the UTF-16 or UTF-32, with its byte order, of a text; "" if it is none."""
    scores = {}
    for encoding in _MARKS.values():
        text = content[: len(content) // 4 * 4].decode(encoding, errors="replace")
        good = sum(c.isprintable() or c.isspace() for c in text) - text.count("\ufffd")
        if text and good >= 0.98 * len(text):
            scores[encoding] = sum(map(text.count, " \n,.，。、")) / len(text)
    best = max(scores, key=lambda encoding: scores[encoding], default="")
    if not best or scores[best] < 0.01:
        return ""
    return best.upper().replace("-LE", "LE").replace("-BE", "BE")
