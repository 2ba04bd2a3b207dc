"""Extract paragraphs of English prose from docstrings, without their markup."""

import inspect
import re
from collections.abc import Iterable, Iterator

_UNDERLINE = re.compile(r"([=\-~^*#+.:_\"'`])\1{2,}")
_DIRECTIVE = re.compile(r"\.\. +([\w-]+):: *(.*)")
_PROSE_DIRECTIVES = frozenset(
    "admonition attention caution danger deprecated hint important note seealso tip"
    " todo versionadded versionchanged warning".split()
)
_BULLET = re.compile(r"(?:[-*+•]|\(?(?:\d{1,2}|[a-z])[.)]|[:@][^:`]+:)\s+(?=\S)")
_NAMED = re.compile(r"[*`\"']*[\w.\-/]+[*`\"']*(?: *\([^()]*\))?: +(?=\S)")
_MARKUP = (
    (r":[\w:+.-]+:`[~!.]*([^`<]+?)(?:\s*<[^`>]*>)?`", r"\1"),  # :role:`text <...>`
    (r"!?\[([^\[\]]+)\]\([^()]*\)", r"\1"),  # [text](target)
    (r"`([^`<]+?)\s*<[^`>]*>`_{1,2}", r"\1"),  # `text <target>`_
    (r" ?\[[#\w.+ -]+\]_", ""),  # [1]_
    (r"(`{1,2})[~!]?([^`]+)\1_{0,2}", r"\2"),  # ``code``, `name`, `target`_
    (r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])", r"\2"),  # *emphasis*
    (r"(?<!\w)\|(\w+)\|(?!\w)", r"\1"),  # |substitution|
    (r"::$", ":"),
)
_MIN_WORDS = 8
_START = re.compile(r"[\"'(“]*[A-Z]")
_END = re.compile(r"[.!?:][)\]\"'”’]*$")
_CODE = re.compile(r"[\\{}|$^~<>`]|://|==|->|\.\.\.[^.\s]|;$")
_WORD = re.compile(r"[\"'(\[“‘]*[A-Za-z]+(?:['’/-][A-Za-z]+)*[.,;:!?)\]\"'”’]*")
_MARKS = ".,;:!?()[]\"'“”‘’"
_GRAMMAR = frozenset(
    "a about after all also an and any are as at be because been before being between"
    " both but by can cannot could do does each either for from had has have here how"
    " if in into is it its itself may might more most must no not of on one only or"
    " other our out over same should since so some such than that the their them then"
    " there these they this those to two until up upon use used using very was we were"
    " what when where whether which while who will with within without would you"
    " your".split()
)


def paragraphs(docstring: str) -> list[str]:
    """Extract the paragraphs of prose of a docstring, each as a line without markup."""
    lines = _without_code(inspect.cleandoc(docstring).split("\n"))
    texts = []
    for text in map(" ".join, _units(lines)):
        if text.count(" ") >= _MIN_WORDS - 1:
            for pattern, replacement in _MARKUP:
                text = re.sub(pattern, replacement, text)
            texts.append(" ".join(text.split()))
    return list(filter(is_prose, texts))


def _without_code(lines: Iterable[str]) -> list[str]:
    """The lines, with code, directives and titles replaced by blank lines."""
    output: list[str] = []
    in_fence = in_session = False
    literal_indent: int | None = None  # deeper lines are a literal block
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if literal_indent is not None and text and indent <= literal_indent:
            literal_indent = None
        in_session = bool(text) and (in_session or text.startswith((">>>", "In [")))
        directive = _DIRECTIVE.match(text)
        if text.startswith("```"):
            in_fence = not in_fence
            text = ""
        elif in_fence or in_session or literal_indent is not None:
            text = ""
        elif _UNDERLINE.fullmatch(text):
            output[-1:] = [""]  # the line above is a title
            text = ""
        elif directive and directive[1] in _PROSE_DIRECTIVES:
            text = directive[2]
        elif text.startswith(("..", "#", "|")):
            literal_indent = indent if text.startswith("..") else None
            text = ""
        elif text.endswith("::"):
            literal_indent = indent
        output.append(" " * indent + text if text else "")
    return output


def _units(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group the lines of each paragraph, list item, or description of a parameter.

    A blank line, a bullet, and a change of indentation each end a unit, except that the
    lines of an item after the first may be indented more.
    """
    unit: list[str] = []
    first = body = 0  # indentation of the first line, of the others
    is_item = False
    for line in [*lines, ""]:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if is_item and len(unit) == 1 and indent > first:
            body = indent
        mark = _BULLET.match(text)
        if not unit or indent != body or (is_item and indent == first):
            mark = mark or _NAMED.match(text)  # elsewhere, a colon in a sentence
        if unit and (not text or mark or indent != body):
            yield unit
            unit = []
        if text and not unit:
            first = body = indent
            is_item = mark is not None
        if text:
            unit.append(text[mark.end() :] if mark else text)


def is_prose(text: str) -> bool:
    """Whether a line of text is English sentences, and not code or a list.

    It must begin and end like a sentence, consist mostly of plain words, and have
    enough function words ("the", "of").
    """
    words = text.split()
    if len(words) < _MIN_WORDS or _CODE.search(text):
        return False
    if not (_START.match(text) and _END.search(text)):
        return False
    plain = sum(_WORD.fullmatch(word) is not None for word in words)
    grammar = sum(word.strip(_MARKS).lower() in _GRAMMAR for word in words)
    return plain >= 0.8 * len(words) and grammar >= 0.25 * len(words)


def duplicate_key(paragraph: str) -> str:
    """The paragraph without case, punctuation and digits, equal for duplicates."""
    return re.sub(r"\W+", " ", re.sub(r"\d+", "0", paragraph)).casefold().strip()
