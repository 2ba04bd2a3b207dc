"""A model's scores beside those of a rule that needs none."""

from collections.abc import Iterator, Mapping

BASELINE = "baseline: "
"""Begins the name under which a run has the score of a rule."""
_FIRST = ("f1", "accuracy", "pearson", "spearman")
"""What the score of a rule is compared with, if the rule's name does not say it."""


def no_better(scores: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each baseline, of validation and test, that is not beaten."""
    for part in ("", "test_"):
        own = {k.removeprefix(part): v for k, v in scores.items() if k.startswith(part)}
        for key in [key for key in own if key.startswith(BASELINE)]:
            rule = key.removeprefix(BASELINE)
            measure, _, what = rule.partition(" of ")
            name = next((n for n in (measure, *_FIRST) if n in own), None)
            if name is None:
                continue
            value, limit = own[name], own[key]
            if not (value < limit if "squared_error" in name else value > limit):
                kind = ".4g" if "squared_error" in name else ".4f"
                yield (
                    f"{part}{name} {value:{kind}} is no better than {what or rule}: "
                    f"{limit:{kind}}"
                )
