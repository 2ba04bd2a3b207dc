"""The experiments: Devlin et al. 2018, §5 and C.2, and later papers on the same.

The figures are those of the papers' tables, for BERT base unless a row says otherwise.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from bert_jax.apps.experiments.design import (
    Averaged,
    Budget,
    Changes,
    Experiment,
    HalfRows,
    MaskedTokens,
    Measure,
    PairAccuracy,
    Probe,
    RowSpec,
    Stage,
    TaskScore,
    Variant,
)
from bert_jax.apps.experiments.inputs import TaskFiles
from bert_jax.config.model import PRESETS

CAUSAL: Changes = (("objective", "causal_lm"), ("model.attention", "causal"))
_FULL_MASKS: Changes = (("masking.mask_share", 1.0), ("masking.random_share", 0.0))
_LOG_SPACED = tuple(2.0**-k for k in range(7, -1, -1))
_SIZES = ("L2_H128", "L4_H256", "L4_H512", "L8_H512", "L12_H512", "L12_H768")
_NEIGHBOURS = (0.5, 1.0, 2.0)
"""Learning rates to choose from, as multiples of the base's."""

Tasks = Sequence[TaskFiles]


def _tuned(tasks: Tasks) -> tuple[TaskScore, ...]:
    return tuple(TaskScore(task.name) for task in tasks)


def _rows(
    variants: Mapping[str, Variant],
    measures: tuple[Measure, ...],
    paper: Mapping[str, tuple[tuple[str, float], ...]],
) -> tuple[RowSpec, ...]:
    """Return a row for each variant, with the paper's figures by the variant's name."""
    return tuple(
        RowSpec(label, variant.name, measures, paper=paper.get(variant.name, ()))
        for label, variant in variants.items()
    )


def _changed(name: str, changes: Changes) -> Variant:
    """Return a variant of one stage that differs from the base by these changes."""
    return Variant(name, stages=(Stage(changes=changes),))


def pretraining_tasks(budget: Budget, tasks: Tasks) -> Experiment:
    causal = (Stage(changes=CAUSAL),)
    variants = {
        "masked LM and next sentence (the paper)": Variant("paper"),
        "the same rows, no next-sentence loss": _changed(
            "no_pair_loss", (("pair_loss", False),)
        ),
        "full-sentence rows without pairs": Variant("full_sentences", "none"),
        "left to right, full-sentence rows": Variant("left_to_right", "none", causal),
    }
    figures = {
        "paper": (84.4, 86.7, 92.7),
        "no_pair_loss": (83.9, 86.5, 92.6),
        "left_to_right": (82.1, 77.5, 92.1),
    }
    columns = ("MNLI", "MRPC", "SST-2")
    paper = {k: tuple(zip(columns, v, strict=True)) for k, v in figures.items()}
    return Experiment(
        "pretraining-tasks",
        "Pretraining tasks",
        "Devlin et al. 2018, §5.1",
        tuple(variants.values()),
        _rows(variants, _tuned(tasks), paper),
        "accuracies on development sets, Devlin et al. 2018, Table 5",
    )


def masking(budget: Budget, tasks: Tasks) -> Experiment:
    measures: tuple[Measure, ...] = (
        MaskedTokens("80/10/10"),
        MaskedTokens("all [MASK]", _FULL_MASKS),
        *_tuned(tasks),
        *(Probe(task.name) for task in tasks if task.is_text),
    )
    columns = ("MNLI", "NER", "NER, features")
    variants, paper = {}, {}
    for (masked, random, kept), figures in _MASK_SHARES.items():
        changes: Changes = (
            ("masking.mask_share", masked / 100),
            ("masking.random_share", random / 100),
        )
        name = f"mask_{masked}_random_{random}_same_{kept}"
        variants[f"{masked}/{random}/{kept}, 15 %"] = _changed(name, changes)
        paper[name] = tuple(zip(columns, figures, strict=True))
    for rate, final in ((0.3, None), (0.4, None), (0.3, 0.05)):
        changes, name = (("masking.rate", rate),), f"rate_{rate:g}"
        label = f"80/10/10, {rate:.0%}".replace("%", " %")
        if final is not None:
            changes += (("masking.final_rate", final),)
            name += f"_to_{final:g}"
            label += f" falling to {final:.0%}".replace("%", " %")
        variants[label] = _changed(name, changes)
    return Experiment(
        "masking",
        "Masking: shares of [MASK], random and kept tokens, and rates",
        "Devlin et al. 2018, C.2; rates: Wettig et al. 2022, Yang et al. 2023",
        tuple(variants.values()),
        _rows(variants, measures, paper),
        "accuracy and F1 on development sets, Devlin et al. 2018, Table 8",
    )


# Per cent of [MASK], random and kept tokens, with the figures of Table 8.
_MASK_SHARES = {
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 20, 0): (84.1, 95.2, 94.6),
    (80, 0, 20): (84.4, 95.2, 94.7),
    (0, 80, 20): (83.7, 94.8, 94.6),
    (0, 100, 0): (83.6, 94.9, 94.6),
}


def objectives(budget: Budget, tasks: Tasks) -> Experiment:
    schedules = {"masked LM": (Stage(),), "left to right": (Stage(changes=CAUSAL),)} | {
        f"left to right for {fraction:.0%}, then masked": (
            Stage(fraction, CAUSAL),
            Stage(1 - fraction),
        )
        for fraction in (0.25, 0.5, 0.75)
    }
    variants = {}
    for label, stages in schedules.items():
        name = label.replace("%", "").replace(",", "").replace(" ", "_")
        variants[label] = Variant(name, "none", stages, _LOG_SPACED)
    return Experiment(
        "objectives",
        "Masked and left-to-right language models, by what was spent",
        "Devlin et al. 2018, C.1, Figure 5; Gisserot-Boukhlef et al. 2025",
        tuple(variants.values()),
        _rows(variants, _tuned(tasks), {}),
    )


def size(budget: Budget, tasks: Tasks) -> Experiment:
    measures: tuple[Measure, ...] = (MaskedTokens("80/10/10"), *_tuned(tasks))
    base_rate = budget.pretraining.optimizer.peak_learning_rate
    rates = tuple(base_rate * factor for factor in _NEIGHBOURS)
    variants, rows = [], []
    # The largest comes first: the others are compared with it, at one rate or the best.
    for name in reversed(_SIZES):
        shape = PRESETS[name]
        changes: Changes = tuple(
            (f"model.{field}", getattr(shape, field)) for field in _SHAPE
        )
        paper = _TABLE_6 if name == _SIZES[-1] else ()
        for suffix, label, own in (
            ("", "one rate", ()),
            ("_best_rate", f"best of {len(rates)} rates", rates),
        ):
            stages, named = (Stage(changes=changes),), f"{name}{suffix}"
            base = "" if name == _SIZES[-1] else f"{_SIZES[-1]}, {label}"
            rows.append(RowSpec(f"{name}, {label}", named, measures, base, paper))
            variants.append(Variant(named, stages=stages, rates=own))
    return Experiment(
        "size",
        "Size of the model",
        "Devlin et al. 2018, §5.2, Table 6",
        tuple(variants),
        tuple(rows),
        "perplexity, and accuracies on development sets, Devlin et al. 2018, Table 6",
    )


_SHAPE = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
)
_TABLE_6 = (("perplexity", 3.99), ("MNLI", 84.4), ("MRPC", 86.7), ("SST-2", 92.9))


def pooling(budget: Budget, tasks: Tasks) -> Experiment:
    """Rows of one variant: how a text becomes a vector, and which layers it is from."""
    num_layers = budget.model.num_hidden_layers
    num_last = min(4, num_layers)
    # Table 7 is of twelve layers: of fewer, the last four are another thing.
    probes: dict[str, tuple[Probe, float | None]] = {
        "mean, last layer": (Probe(""), 94.9),
        "mean, second-to-last layer": (Probe("", (-2,)), 95.6),
        "mean, embeddings": (Probe("", (0,)), 91.0),
        f"mean, last {num_last} layers side by side": (
            Probe("", tuple(range(-1, -num_last - 1, -1))),
            96.1 if num_last == 4 else None,
        ),
        "mean, sum of all layers": (
            Probe("", tuple(range(1, num_layers + 1)), "sum"),
            None,
        ),
        "[CLS], last layer": (Probe("", pooling="cls"), None),
    }
    fine_tuned = {"mean, last layer": "mean", "[CLS], last layer": "cls"}
    texts = [task.name for task in tasks if task.is_text]
    rows = []
    for label, (probe, figure) in probes.items():
        measures: tuple[Measure, ...] = tuple(
            dataclasses.replace(probe, task=name) for name in texts
        )
        if label in fine_tuned:
            changes: Changes = (("model.pooling", fine_tuned[label]),)
            measures = (*(TaskScore(name, changes) for name in texts), *measures)
        paper = () if figure is None else (("NER, features", figure),)
        rows.append(RowSpec(label, "paper", measures, paper=paper))
    return Experiment(
        "pooling",
        "From the states of tokens to a vector of the text",
        "Devlin et al. 2018, §5.3, Table 7",
        (Variant("paper"),),
        tuple(rows),
        "F1 of tagging each token by features, Devlin et al. 2018, Table 7",
    )


def recipe(budget: Budget, tasks: Tasks) -> Experiment:
    """Ways to learn more from the same FLOPs, each alone, and those that help."""
    language: tuple[Measure, ...] = (MaskedTokens("15 %"), PairAccuracy())
    variants, rows = _levers(budget), []
    for label, variant in variants.items():
        # Without a pair loss, the pair classifier is as it began.
        own = language[:1] if variant.name == "no_pair_loss" else language
        rows.append(RowSpec(label, variant.name, (*own, *_tuned(tasks))))
    return Experiment(
        "recipe",
        "Learning more from the same FLOPs",
        "Liu et al. 2025; Wettig et al. 2022; Hägele et al. 2024; Izmailov et al. 2018",
        tuple(variants.values()),
        tuple(rows),
    )


_MUON: Changes = (("optimizer.algorithm", "muon"),)
_DEEPNORM: Changes = (("model.initializer", "deepnorm"),)
_LOCAL: Changes = (("model.initializer", "local"),)
_MATCHING: Changes = (("model.initializer", "matching"),)
_QUARTER: Changes = (("masking.rate", 0.25),)
_LATE: Changes = (("optimizer.schedule", "constant"), ("optimizer.decay_share", 0.3))
_STAY: Changes = (("optimizer.schedule", "constant"), ("optimizer.decay_share", 0.0))


def _levers(budget: Budget) -> dict[str, Variant]:
    """Return the variants of `recipe` by their label; the first is the base."""
    size = budget.pretraining.batch_size
    heads: Changes = (
        ("model.num_attention_heads", 2 * budget.model.num_attention_heads),
    )
    changes = {
        "Muon": _MUON,
        "DeepNorm's initialisation": _DEEPNORM,
        "heads that begin with a neighbour": _LOCAL,
        **_common_levers(budget),
        "twice the heads": heads,
        "Muon, DeepNorm's initialisation": _MUON + _DEEPNORM,
        "Muon, heads that begin with a neighbour": _MUON + _LOCAL,
        "Muon, twice the heads": _MUON + heads,
        "Muon, twice the heads, some that look for the same token": (
            _MUON + heads + _MATCHING
        ),
        "Muon, constant rate until 70 %": _MUON + _LATE,
        "Muon, twice the rate": (*_MUON, _rate(budget, 2.0)),
        "Muon, twice the heads, 25 % masked, constant rate until 70 %": (
            _MUON + heads + _QUARTER + _LATE
        ),
    }
    levers = {"AdamW": Variant("adamw")}
    for label, lever in changes.items():
        name = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
        levers[label] = _changed(name, lever)
    short = HalfRows(0.7, (*_STAY, ("batch_size", 2 * size)))
    levers["rows of half the length for 70 %"] = Variant(
        "half_rows", stages=(short, Stage(0.3))
    )
    levers["mean of three last checkpoints"] = Averaged("averaged")
    return levers


def _common_levers(budget: Budget) -> dict[str, Changes]:
    """Return those of every optimizer: masks, losses, dropout, batch and schedule."""
    size = budget.pretraining.batch_size
    dropout = 0.0 if budget.model.hidden_dropout_prob else 0.1
    return {
        "25 % masked": _QUARTER,
        "40 % masked": (("masking.rate", 0.4),),
        "40 % masked, falling to 15": (
            ("masking.rate", 0.4),
            ("masking.final_rate", 0.15),
        ),
        "no pair loss": (("pair_loss", False),),
        f"dropout {dropout:g}": (
            ("model.hidden_dropout_prob", dropout),
            ("model.attention_probs_dropout_prob", dropout),
        ),
        "half the batch": (("batch_size", max(1, size // 2)),),
        "twice the batch": (("batch_size", 2 * size),),
        "constant rate until 70 %": _LATE,
        "beta2 0.999": (("optimizer.beta2", 0.999),),
        "half the rate": (_rate(budget, 0.5),),
        "twice the rate": (_rate(budget, 2.0),),
    }


def _rate(budget: Budget, factor: float) -> tuple[str, float]:
    rate = budget.pretraining.optimizer.peak_learning_rate
    return "optimizer.peak_learning_rate", factor * rate


EXPERIMENTS: dict[str, Callable[[Budget, Tasks], Experiment]] = {
    "pretraining-tasks": pretraining_tasks,
    "masking": masking,
    "objectives": objectives,
    "size": size,
    "pooling": pooling,
    "recipe": recipe,
}
