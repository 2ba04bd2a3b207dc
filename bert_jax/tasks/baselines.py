"""A model's scores compared with a rule that needs no model."""

from collections.abc import Iterator, Mapping

BASELINE = "baseline: "
"""Begins the name under which a run has the score of a rule."""
_UNIGRAM = {"unigram_loss": "token frequency"}
"""Pretraining has the score of a rule under a name of its own."""
_SCORES = ("f1", "accuracy", "spearman", "pearson", "mlm_loss", "clm_loss")
"""What the score of a rule is compared with, if the rule's name does not say it."""


def comparisons(
    scores: Mapping[str, float],
) -> Iterator[tuple[str, float, str, float]]:
    """Yield the name and value of a score, and of each rule that it compares with."""
    for key, limit in scores.items():
        rule = _UNIGRAM.get(key, key.removeprefix(BASELINE))
        measure, _, what = rule.partition(" of ")
        name = next((n for n in (measure, *_SCORES) if n in scores), None)
        if rule != key and name is not None:
            yield name, scores[name], what or rule, limit


def no_better(scores: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each baseline, of validation and test, that is not beaten."""
    for part in ("", "test_"):
        own = {k.removeprefix(part): v for k, v in scores.items() if k.startswith(part)}
        for name, value, rule, limit in comparisons(own):
            is_error = "squared_error" in name
            least, f = is_error or name.endswith("_loss"), ".4g" if is_error else ".4f"
            if not (value < limit if least else value > limit):
                yield f"{part}{name} {value:{f}} is no better than {rule}: {limit:{f}}"
