"""Experiments: their rows, their cells, and what a second call does."""

import csv
import dataclasses
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from miniature import miniature_budget, part_of
from small_world import SUBJECTS

from bert_jax.apps.experiments.bootstrap import seed_scores
from bert_jax.apps.experiments.budgets import BUDGETS
from bert_jax.apps.experiments.catalogue import EXPERIMENTS
from bert_jax.apps.experiments.cells import Cell
from bert_jax.apps.experiments.design import Budget, with_changes
from bert_jax.apps.experiments.inputs import ExperimentInputs, TaskFiles, parse_task
from bert_jax.apps.experiments.reproduce import (
    ReproductionPlan,
    budget_of,
    make_plan,
    reproduce,
)
from bert_jax.apps.experiments.results import Result, read_result, write_result


@pytest.fixture(scope="module")
def budget() -> Budget:
    return miniature_budget()


@pytest.fixture(scope="module")
def tags(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tags")
    for split in ("train", "test"):
        lines = [f"The O\n{who} B-WHO\nreads O\n\n" for who in SUBJECTS]
        (folder / f"{split}.conll").write_text("".join(lines))
    return f"tags={folder / 'train.conll'},{folder / 'test.conll'}"


def planned(
    name: str, budget: Budget, root: Path, corpus: Path, *tasks: str
) -> ReproductionPlan:
    return make_plan(name, budget, root, (str(corpus / "*.txt"),), "", tasks)


def scores_of(root: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((root / "seeds.csv").read_text())))


@pytest.mark.parametrize("budget_name", BUDGETS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_made_of_valid_configurations(name, budget_name):
    budget = BUDGETS[budget_name]
    tasks = [
        TaskFiles("one", "text-classification", "a.csv", "b.csv", ("text",)),
        TaskFiles("two", "token-classification", "a.txt", "b.txt"),
    ]
    experiment = EXPERIMENTS[name](budget, tasks)
    variants = {variant.name: variant for variant in experiment.variants}
    assert {row.variant for row in experiment.rows} == set(variants)
    assert len(variants) == len(experiment.variants)
    for variant in variants.values():
        assert sum(stage.fraction for stage in variant.stages) == 1
        assert (
            list(variant.fractions) == sorted(variant.fractions)
            and variant.fractions[-1] == 1
        )
        for stage in variant.stages:
            config = with_changes(budget.pretraining, stage.changes)
            rate = max(config.masking.rate, config.masking.final_rate or 0)
            expected = round(rate * budget.sequence_length)
            assert config.masking.num_slots(budget.sequence_length) == expected
    inputs = ExperimentInputs(Path("x"), (), "", ())
    cell = Cell(Path("x"), budget, inputs, experiment.variants[0], 0)
    paths = [
        cell.result_path(row, measure, 1.0)
        for row in experiment.rows
        for measure in row.measures
    ]
    assert len(set(paths)) == len(paths)


def test_tables_and_plots_are_made_of_the_results_that_are_there(
    budget, task, corpus, tmp_path
):
    """Results of no training: what is measured is in its files already."""
    root = tmp_path / "tasks"
    five = dataclasses.replace(budget, seeds=5)
    plan = planned("pretraining-tasks", five, root, corpus, task)
    generator = np.random.default_rng(0)
    rates = {"left_to_right": 0.1}
    for cell in plan.cells:
        (row,) = (r for r in plan.experiment.rows if r.variant == cell.variant.name)
        hits = generator.random(400) < rates.get(cell.variant.name, 0.8)
        items = np.stack([hits, np.ones(400)], axis=1).astype(np.float64)
        path = cell.result_path(row, row.measures[0], 1.0)
        path.parent.mkdir(parents=True)
        write_result(path, Result(items, "ratio", 9.0))
    (root / "protocol.json").write_text("{}")  # begun, and not finished
    removed = plan.cells[2]
    removed.diverged.write_text("The gradients stayed non-finite.\n")
    (path,) = (removed.directory / "results").glob("*.npz")
    path.unlink()
    paths = reproduce(plan)
    assert [path.name for path in paths] == [
        *("results.md", "results.csv", "seeds.csv", "plot.png", "plot.svg")
    ]
    page = (root / "results.md").read_text()
    assert "Clearly worse: left to right" in page
    assert "As in the paper: left to right" in page
    assert "and left out: full_sentences, seed 0." in page
    (line,) = (x for x in page.split("\n") if x.startswith("| full-sentence"))
    assert line.endswith("] (n = 4) |  |  |  |")
    assert "Few items make wide intervals" in page
    table = list(csv.DictReader(io.StringIO((root / "results.csv").read_text())))
    assert [row["seeds"] for row in table] == ["5", "5", "4", "5"]
    assert float(table[3]["high"]) < -0.5 and table[3]["paper MNLI"] == "82.1"
    assert table[0]["difference"] == "" and int(table[0]["steps"]) > 0
    # The causal variant predicts every token, and so has fewer steps.
    assert int(table[3]["steps"]) < int(table[2]["steps"])
    assert len(scores_of(root)) == 19
    for seeds in (6, 4):  # more can follow, and fewer be shown
        other = dataclasses.replace(budget, seeds=seeds)
        plan = planned("pretraining-tasks", other, root, corpus, task)
        assert len(plan.cells) == 4 * seeds
    reproduce(plan)
    assert len(scores_of(root)) == 15


@pytest.mark.slow
def test_an_experiment_is_run_once_and_goes_on_where_it_was_stopped(
    budget, task, corpus, tmp_path, capsys
):
    root = tmp_path / "tasks"
    one_seed = dataclasses.replace(budget, seeds=1)
    full = planned("pretraining-tasks", one_seed, root, corpus, task)
    plan = part_of(full, "full_sentences", "left_to_right")
    paths = reproduce(plan)
    assert {path.name for path in paths} == {
        *("results.md", "results.csv", "seeds.csv", "plot.png", "plot.svg")
    }
    assert all(path.stat().st_size > 200 for path in paths)
    rows = scores_of(root)
    assert len(rows) == 2
    for row in rows:
        assert 0 <= float(row["score"]) <= 1
    # The causal variant predicts every token, and so has fewer steps.
    assert 0 < int(rows[1]["steps"]) < int(rows[0]["steps"])
    page = (root / "results.md").read_text()
    assert "who, fine-tuned" in page and "(n = " not in page
    assert not list(root.glob("cells/*/*/*fine_tuned*/checkpoints"))

    first, removed = sorted(root.glob("cells/*/*/results/*.npz"))
    time, before = first.stat().st_mtime_ns, read_result(removed)
    removed.unlink()
    capsys.readouterr()
    reproduce(plan)
    assert capsys.readouterr().out.count("classes (to learn from") == 1
    assert (read_result(removed).items == before.items).all()
    assert first.stat().st_mtime_ns == time
    protocol = page.partition("protocol `")[2][:12]
    assert f"protocol `{protocol}`" in (root / "results.md").read_text()

    plan.cells[1].diverged.write_text("The gradients stayed non-finite.\n")
    reproduce(plan)
    page = (root / "results.md").read_text()
    assert "Diverged, and left out: left_to_right, seed 0." in page

    first.write_bytes(first.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is damaged; remove it, and its measure"):
        reproduce(plan)
    other = dataclasses.replace(one_seed, flops=2 * budget.flops)
    with pytest.raises(ValueError, match="budget.flops was 6.*Repeat its options"):
        planned("pretraining-tasks", other, root, corpus, task)
    with pytest.raises(ValueError, match="has an experiment with other options"):
        planned("objectives", one_seed, root, corpus, task)
    root.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="moved was begun as .*tasks.*move it back"):
        planned("pretraining-tasks", one_seed, tmp_path / "moved", corpus, task)


@pytest.mark.slow
def test_half_rows_and_a_mean_of_checkpoints(budget, task, corpus, tmp_path):
    root = tmp_path / "recipe"
    # 30 steps: checkpoints of the last tenth are at 27 or 28, at 29, and at the end.
    one_seed = dataclasses.replace(budget, seeds=1, flops=3 * budget.flops)
    plan = planned("recipe", one_seed, root, corpus, task)
    reproduce(part_of(plan, "adamw", "half_rows", "averaged"))
    scores = {(row["row"], row["measure"]): row for row in scores_of(root)}
    assert len(scores) == 9
    whole, half, mean = (
        scores[label, "next sentence"]
        for label in (
            *("AdamW", "rows of half the length for 70 %"),
            "mean of three last checkpoints",
        )
    )
    assert all(0 < float(row["score"]) < 1 for row in (whole, half, mean))
    assert whole["steps"] == mean["steps"]
    assert abs(int(half["steps"]) - int(whole["steps"])) < 4  # as many tokens a step
    lengths = {path.name: read_manifest(path) for path in root.glob("rows_*")}
    assert lengths == {"rows_nsp": 32, "rows_nsp_half": 16}
    (directory,) = root.glob("cells/averaged/seed_0")
    receipt = json.loads((directory / "average" / "conversion.json").read_text())
    assert len(receipt["mean_of"]) == 3
    perplexities = {
        label: float(row["score"])
        for (label, measure), row in scores.items()
        if measure.startswith("perplexity")
    }
    assert len(set(perplexities.values())) == 3


def read_manifest(dataset: Path) -> int:
    return json.loads((dataset / "manifest.json").read_text())["sequence_length"]


def test_a_start_that_fails_does_not_hinder_the_next(budget, task, corpus, tmp_path):
    """Its text has more characters than tokens: nothing was run with its options."""
    root = tmp_path / "new"
    poor = dataclasses.replace(budget, vocab_size=9)
    with pytest.raises(ValueError, match="vocab_size=9 is less than"):
        reproduce(planned("pooling", poor, root, corpus, task))
    planned("pooling", budget, root, corpus, task)


def test_a_run_that_diverged_ends_its_cell_and_no_other(budget, task, corpus, tmp_path):
    root = tmp_path / "tasks"
    plan = planned("pretraining-tasks", budget, root, corpus, task)
    plan = part_of(plan, "paper")
    cell = plan.cells[0]
    cell.diverged.parent.mkdir(parents=True)
    cell.diverged.write_text("gradients stayed non-finite\n")
    cell.run(plan.experiment)  # does nothing
    assert list(cell.directory.iterdir()) == [cell.diverged]


@pytest.mark.parametrize("name", ["a_", "A", "a__b", "_a", "libraries", "1a", ""])
def test_names_of_tasks_are_names_of_files(name, task, tmp_path):
    with pytest.raises(ValueError, match="lower-case letters"):
        parse_task(task.replace("who=", f"{name}="), tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "CSV", "csv.gz"])
def test_pairs_of_texts_are_a_task(suffix, tmp_path):
    for split in ("train", "test"):
        text = b"text_a,text_b,label\nA judge.,A clerk.,yes\n"
        text = gzip.compress(text) if suffix.endswith("gz") else text
        (tmp_path / f"{split}.{suffix}").write_bytes(text)
    files = ",".join(f"{tmp_path}/{split}.{suffix}" for split in ("train", "test"))
    task = parse_task(f"two={files}", tmp_path)
    assert task.is_text and task.text_columns == ("text_a", "text_b")


@pytest.mark.slow
def test_all_rows_are_compared_with_the_first_on_texts_and_tags(
    budget, task, tags, corpus, tmp_path
):
    root = tmp_path / "tasks"
    reproduce(planned("pretraining-tasks", budget, root, corpus, task, tags))
    rows = scores_of(root)
    assert len(rows) == 4 * 2 * 2  # variants, tasks, seeds
    assert {row["seed"] for row in rows} == {"0", "1"}
    table = (root / "results.md").read_text().split("\n|")[1:]
    assert len(table) == 2 + 4
    for line in table[3:]:
        assert line.count("[") == 2, line  # an interval for each task


@pytest.mark.slow
def test_a_task_whose_file_changes_is_refused(budget, tags, corpus, tmp_path):
    files = tmp_path / "train.csv", tmp_path / "test.csv"
    for path in files:
        path.write_text("text,label\n" + "The judge reads.,a\nThe clerk reads.,b\n" * 8)
    root = tmp_path / "pooling"
    task = f"own={files[0]},{files[1]}"
    plan = planned("pooling", dataclasses.replace(budget, seeds=1), root, corpus, task)
    reproduce(plan)
    page = (root / "results.md").read_text()
    assert "own, features" in page and "own, fine-tuned" in page
    files[1].write_text(files[1].read_text() + "The judge signs.,a\n")
    with pytest.raises(ValueError, match="own test has changed since"):
        reproduce(plan)


@pytest.mark.slow
def test_masking_is_measured_on_the_same_masks_and_by_features(
    budget, task, corpus, tmp_path
):
    root = tmp_path / "masking"
    plan = planned("masking", dataclasses.replace(budget, seeds=1), root, corpus, task)
    # Two of the nine rows are enough for what is measured of each.
    plan = part_of(plan, "mask_80_random_10_same_10", "rate_0.3_to_0.05")
    reproduce(plan)
    by_row = {}
    for cell, row in zip(plan.cells, plan.experiment.rows, strict=True):
        assert row.variant == cell.variant.name
        by_row[row.name] = [
            read_result(cell.result_path(row, measure, 1.0)) for measure in row.measures
        ]
    first, other = by_row.values()
    for one, two in zip(first[:2], other[:2], strict=True):
        assert (one.items[:, 1] == two.items[:, 1]).all()  # the same predictions
        assert (one.items[:, 0] != two.items[:, 0]).any()  # of other models
    plain, full = (seed_scores(r.items[None], r.kind)[0] for r in first[:2])
    assert plain != full and 1 < plain < 200 and 1 < full < 200
    assert len(first[2].items) == len(first[3].items) == 16


@pytest.mark.slow
def test_objectives_are_measured_on_the_way(budget, task, corpus, tmp_path):
    """Stages follow each other, and a longer part of a schedule extends a shorter."""
    root = tmp_path / "objectives"
    small = dataclasses.replace(budget, seeds=1, flops=2e8)
    plan = planned("objectives", small, root, corpus, task)
    variants = tuple(
        dataclasses.replace(variant, fractions=(0.125, 0.5, 1.0))
        for variant in plan.experiment.variants
        if "50" in variant.name
    )
    rows = tuple(row for row in plan.experiment.rows if row.variant == variants[0].name)
    experiment = dataclasses.replace(plan.experiment, rows=rows, variants=variants)
    plan = dataclasses.replace(plan, experiment=experiment)
    reproduce(plan)
    steps = [int(row["steps"]) for row in scores_of(root)]
    assert steps == sorted(steps) and len(set(steps)) == 3
    (cell,) = root.glob("cells/*/seed_0")
    causal, masked = (
        json.loads((cell / f"pretraining_{i}" / "config.json").read_text())
        for i in (0, 1)
    )
    assert causal["objective"] == "causal_lm" and masked["objective"] == "masked_lm"
    assert masked["init_from"] == str(cell / "pretraining_0")
    assert steps[1] == causal["num_steps"] == causal["optimizer"]["decay_steps"]
    assert steps[2] == causal["num_steps"] + masked["num_steps"]
    assert causal["seed"] != masked["seed"]  # other rows first
    early = sorted(root.glob("cells/*/*/results/*0.1250.npz"))[0]
    before = read_result(early).items
    early.unlink()
    reproduce(plan)  # trains the earlier state again
    assert (read_result(early).items == before).all()


@pytest.mark.slow
def test_a_learning_rate_is_chosen_by_a_seed_that_no_table_has(
    budget, task, corpus, tmp_path
):
    root = tmp_path / "size"
    rich = dataclasses.replace(budget, seeds=1, flops=2e15)
    plan = planned("size", rich, root, corpus, task)
    poor = dataclasses.replace(plan.budget, flops=2e7)
    variants = tuple(
        dataclasses.replace(
            variant,
            rates=(1e-5, 3e-3),
            stages=(dataclasses.replace(variant.stages[0], changes=()),),
        )
        for variant in plan.experiment.variants
        if variant.name == "L2_H128_best_rate"
    )
    rows = tuple(row for row in plan.experiment.rows if row.variant == variants[0].name)
    experiment = dataclasses.replace(plan.experiment, rows=rows, variants=variants)
    reproduce(dataclasses.replace(plan, experiment=experiment, budget=poor))
    (chosen,) = root.glob("cells/*/rate.json")
    losses = dict(json.loads(chosen.read_text())["losses"])
    assert json.loads(chosen.read_text())["rate"] == min(losses, key=losses.get) == 3e-3
    (run,) = root.glob("cells/*/seed_0/pretraining_0/config.json")
    assert json.loads(run.read_text())["optimizer"]["peak_learning_rate"] == 3e-3
    (held_out,) = root.glob("rates/0.003/cells/*/*/pretraining_0/config.json")
    assert json.loads(held_out.read_text())["seed"] == 1000


def test_budgets_can_be_changed_but_not_below_sense(corpus, task, tmp_path):
    budget = budget_of("toy", 1e9, 3)
    assert (budget.flops, budget.seeds) == (1e9, 3)
    with pytest.raises(ValueError, match="2e\\+15 the loss does not fall smoothly"):
        planned("size", budget, tmp_path / "new", corpus, task)
    with pytest.raises(ValueError, match="must be toy, small, base"):
        budget_of("huge")
    with pytest.raises(ValueError, match="flops=-1"):
        budget_of("toy", -1.0)
