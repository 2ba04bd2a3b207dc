"""`bert-jax fill`: what stands at the masks of texts, or of lines as they come."""

from collections.abc import Callable, Iterator, Sequence

from bert_jax.inference.arguments import require_text
from bert_jax.inference.batching import rows_of
from bert_jax.inference.jsonl import json_line
from bert_jax.inference.language_model import masked_segments
from bert_jax.inference.predictor import load
from bert_jax.tables.lines import STDIN, chunks, display_name, read_lines
from bert_jax.tables.standard_input import announce_typing
from bert_jax.terminal.messages import printable

_CHUNK_LINES = 1024


def filled_texts(
    path: str,
    texts: Sequence[str],
    top_k: int,
    report: Callable[[str], None],
    as_json: bool = False,
) -> Iterator[str]:
    """Yield what the model at `path` fills in each text: lines to read, or JSON.

    Without texts, they are the lines of standard input that are not blank. `report`
    takes a line on each text that has no mask or is too long. Raise ValueError if the
    model fills no masks.
    """
    bert = load(path)
    bert.fill_mask([], top_k=top_k)  # may refuse the model, before a text is typed
    source, what = ("", "text") if texts else (STDIN, f"{display_name(STDIN)}, line")
    if not texts:
        announce_typing()
    lines = enumerate(texts or read_lines(STDIN), 1)
    show = _json_line if as_json else _shown
    for chunk in chunks(source, lines, _CHUNK_LINES):
        usable = []
        for number, text in chunk:
            if texts or text.strip():
                try:
                    names = [f"{what} {number}"]
                    require_text(names[0], text)
                    segments = masked_segments(bert.tokenizer, [text], names)
                    rows_of(bert.model, segments, names)
                    usable.append(text)
                except ValueError as error:
                    report(str(error))
        for text, filling in zip(
            usable, bert.fill_mask(usable, top_k=top_k), strict=True
        ):
            # Of a single mask, the tokens themselves.
            masks = filling if isinstance(filling[0], list) else [filling]
            yield show(text, masks)


def _json_line(text: str, masks: list[list[tuple[str, float]]]) -> str:
    values = [
        [{"token": token, "probability": float(f"{p:.6g}")} for token, p in mask]
        for mask in masks
    ]
    return json_line({"text": text, "masks": values})


def _shown(text: str, masks: list[list[tuple[str, float]]]) -> str:
    lines = [text]
    for number, mask in enumerate(masks, 1):
        which = f"{number}. " if len(masks) > 1 else ""
        lines.append(f"  {which}" + "  ".join(f"{token} {p:.1%}" for token, p in mask))
    return "\n".join(map(printable, "\n".join(lines).split("\n")))
