"""Draw the demo's picture: a curve of the loss, and the predictions for a masked word.

It is an SVG file of its own, without a script, so that a README can show it.
"""

import html
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT = 860, 300
_LEFT, _TOP, _CURVE_WIDTH, _CURVE_HEIGHT = 56, 62, 370, 190
_BARS_LEFT, _BAR_LEFT, _BAR_WIDTH, _BAR_HEIGHT, _BAR_STEP = 476, 586, 190, 16, 29
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.mono { font-family: ui-monospace, monospace; }
.quiet { fill: #59636e; font-size: 12px; }
.end { text-anchor: end; }
.axis { stroke: #d1d9e0; }
.guess { stroke: #59636e; stroke-dasharray: 5 4; }
.train { fill: none; stroke: #0969da; stroke-opacity: 0.45; stroke-width: 1.5; }
.validation { fill: none; stroke: #0969da; stroke-width: 2.5; }
.dot, .bar { fill: #0969da; }
.rest { fill: #0969da; fill-opacity: 0.12; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .quiet { fill: #9198a1; }
  .axis { stroke: #3d444d; }
  .guess { stroke: #9198a1; }
  .train, .validation { stroke: #4493f8; }
  .dot, .bar, .rest { fill: #4493f8; }
}
"""

Points = Sequence[tuple[int, float]]
"""Steps, and the loss at each."""
Number = float | int


def draw_picture(
    path: Path,
    train: Points,
    validation: Points,
    guessing: float,
    sentence: str,
    predictions: Sequence[tuple[str, float]],
) -> None:
    """Write the picture of masked-LM losses in nats, and of what fills one [MASK].

    `guessing` is the loss of predicting each token by its frequency.
    """
    parts = [*_curve(train, validation, guessing), *_bars(sentence, predictions)]
    title = "What the demo's model has learned"
    description = (
        f"Masked-LM loss on validation text falls from {validation[0][1]:.2f} to "
        f"{validation[-1][1]:.2f} nats; guessing by frequency has {guessing:.2f}. "
        f"{sentence}: " + ", ".join(f"{token} {p:.0%}" for token, p in predictions)
    )
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">\n'
        f"<title>{title}</title>\n<desc>{html.escape(description)}</desc>\n"
        f"<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )


def _text(x: Number, y: Number, text: str, *classes: str) -> str:
    names = f' class="{" ".join(classes)}"' if classes else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{names}>{html.escape(text)}</text>'


def _line(x1: Number, y1: Number, x2: Number, y2: Number, name: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} class="{name}"/>'


def _curve(train: Points, validation: Points, guessing: float) -> list[str]:
    """The losses over the steps, with the loss of guessing as a dashed line."""
    losses = [loss for _, loss in (*train, *validation)]
    last_step = max(step for step, _ in (*train, *validation))
    low, high = int(min(losses)), max(*losses, guessing) * 1.02
    bottom, right = _TOP + _CURVE_HEIGHT, _LEFT + _CURVE_WIDTH

    def x(step: int) -> float:
        return _LEFT + _CURVE_WIDTH * step / last_step

    def y(loss: Number) -> float:
        return bottom - _CURVE_HEIGHT * (loss - low) / (high - low)

    def path(points: Points, name: str) -> str:
        places = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in points)
        return f'<polyline points="{places}" class="{name}"/>'

    ticks = range(low, int(high) + 1)
    step, loss = validation[-1]
    return [
        _text(_LEFT, 28, "Masked-LM loss, nats", "title"),
        _text(_LEFT, 46, "thin: training text; thick: text not trained on", "quiet"),
        *(_line(_LEFT, y(tick), right, y(tick), "axis") for tick in ticks),
        *(_text(_LEFT - 8, y(tick) + 4, str(tick), "quiet", "end") for tick in ticks),
        _line(_LEFT, y(guessing), right, y(guessing), "guess"),
        _text(right, y(guessing) + 16, f"guessing: {guessing:.2f}", "quiet", "end"),
        path(train, "train"),
        path(validation, "validation"),
        *(
            f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="3" class="dot"/>'
            for s, v in validation
        ),
        _text(x(step), y(loss) - 10, f"{loss:.2f}", "title", "end"),
        _text(_LEFT, bottom + 22, "step 0", "quiet"),
        _text(right, bottom + 22, f"{last_step:,}", "quiet", "end"),
    ]


def _bars(sentence: str, predictions: Sequence[tuple[str, float]]) -> list[str]:
    """The sentence, and a bar for the probability of each prediction."""
    parts = [
        _text(_BARS_LEFT, 28, "What stands behind the mask?", "title"),
        _text(_BARS_LEFT, 46, sentence, "mono", "quiet"),
    ]
    highest = max(probability for _, probability in predictions)
    full = next(scale for scale in (0.1, 0.25, 0.5, 1.0) if scale >= highest)
    for number, (token, probability) in enumerate(predictions):
        top = _TOP + 22 + number * _BAR_STEP
        box = f'x="{_BAR_LEFT}" y="{top}" height="{_BAR_HEIGHT}" rx="3"'
        parts += [
            _text(_BAR_LEFT - 10, top + 13, token, "mono", "end"),
            f'<rect {box} width="{_BAR_WIDTH}" class="rest"/>',
            f'<rect {box} width="{_BAR_WIDTH * probability / full:.1f}" class="bar"/>',
            _text(_BAR_LEFT + _BAR_WIDTH + 48, top + 13, f"{probability:.1%}", "end"),
        ]
    return parts
