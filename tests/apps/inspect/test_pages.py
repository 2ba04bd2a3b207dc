"""What `inspect` prints and the pages that verbs write, from Python."""

import json
import re
import shutil
from pathlib import Path

import pytest

import bert_jax
from bert_jax.cli.main import main


@pytest.mark.parametrize(
    "options",
    [
        {"verify": True},
        {"when": ("the", "in the")},
        {"summary": True, "sequence_length": 16},
    ],
)
def test_inspect_returns_what_the_verb_prints(options, pretrained, capsys):
    words = ["inspect", str(pretrained)]
    for name, value in options.items():
        values = (value,) if isinstance(value, str) else value
        values = values if isinstance(values, tuple) else (values,)
        for one in values:
            option = f"--{name.replace('_', '-')}"
            words += [option] if one is True else [option, str(one)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    value = bert_jax.inspect(pretrained, **options)
    assert capsys.readouterr().out == ""
    assert f"{value!r}\n" == f"{value}\n" == printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify": True, "summary": True}, "^verify has no effect with summary; "),
        ({"when": "a", "verify": True}, r"^when=\('a',\) has no effect with verify; "),
        ({"run": "runs/a"}, "^run='runs/a' has no effect without when"),
        ({"sequence_length": 8}, "^sequence_length=8 has no effect without summary"),
    ],
)
def test_an_argument_without_effect_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bert_jax.inspect(tmp_path, **options)


def test_pages_are_written_by_functions(pretrained, tmp_path):
    page = bert_jax.run_page(pretrained, tmp_path / "run.html")
    assert page == tmp_path / "run.html" and str(pretrained) in page.read_text()
    with pytest.raises(ValueError, match="names no run; name one or several"):
        bert_jax.run_page([], tmp_path / "none.html")
    bert = bert_jax.load(pretrained)
    for model, name in ((bert, "the model"), (pretrained, str(pretrained))):
        page = bert_jax.attention_page(model, "the judge", tmp_path / "a.html")
        assert page == tmp_path / "a.html"
        assert name in page.read_text() and '"judge"' in page.read_text()
    with pytest.raises(ValueError, match=r"a.pdf must end in \.html"):
        bert_jax.attention_page("no model", "the river", "a.pdf")


def test_several_runs_stand_on_one_page(pretrained, tmp_path, refused):
    """Their scores, what differs, and their curves; the best of equal masks alone."""
    change = {"field": "eval_rows", "before": 65_536, "now": 16}
    others = {
        "lucky": {"seed": 7},
        "masked": {"masking": {"rate": 0.3}},
        "tokens": {"pair_loss": False},
        "few": {"eval_rows": 16, "history": [{"step": 8, "changed": [change]}]},
    }
    for name, changes in others.items():
        shutil.copytree(pretrained, tmp_path / name)
        path = tmp_path / name / "config.json"
        config = json.loads(path.read_text())
        for field, value in changes.items():
            is_part = isinstance(value, dict)
            config[field] = config[field] | value if is_part else value
        path.write_text(json.dumps(config))
    log = tmp_path / "lucky" / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    better = [line | {"loss": line["loss"] - 1} for line in lines]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in better))
    page = str(tmp_path / "page.html")

    def compared(*runs: Path) -> dict:
        assert main(["inspect", *map(str, runs), "--output", page]) == 0
        text = Path(page).read_text()
        return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])

    data = compared(pretrained, tmp_path / "lucky")
    assert [run["name"].split("/")[-1] for run in data["runs"]] == ["run", "lucky"]
    loss = next(row for row in data["scores"] if row["title"] == "Loss")
    assert loss["best"] == [1] and loss["values"][1] == pytest.approx(
        loss["values"][0] - 1
    )
    differing = [row for row in data["configuration"] if row["differs"]]
    assert [(row["name"], row["values"]) for row in differing] == [("seed", ["0", "7"])]
    chart = next(c for c in data["charts"] if c["title"] == "Loss, validation")
    assert len(chart["curves"]) == 2 and not data["notes"]
    data = compared(tmp_path / "lucky", tmp_path / "masked")
    assert not any(row["best"] for row in data["scores"])
    assert "other masks" in data["notes"][0]
    data = compared(tmp_path / "lucky", tmp_path / "tokens")
    assert "masked_lm, pairs none" in data["notes"][0]
    tied = [line | {"loss": 1.0, "f1_threshold": 0.5} for line in lines]
    (tmp_path / "few" / "metrics.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in tied[:-1])
    )
    log.write_text("".join(f"{json.dumps(line)}\n" for line in tied))
    data = compared(tmp_path / "lucky", tmp_path / "few")
    assert "other masks" in data["notes"][0]
    shutil.copytree(tmp_path / "lucky", tmp_path / "low")
    lower = log.read_text().replace('"f1_threshold": 0.5', '"f1_threshold": 0.25')
    (tmp_path / "low" / "metrics.jsonl").write_text(lower)
    rows = compared(tmp_path / "lucky", tmp_path / "low")["scores"]
    row = next(row for row in rows if row["title"] == "F1 threshold")
    assert (row["values"], row["best"]) == ([0.5, 0.25], []), "neither is better"
    # Of equal scores the newest, and none of before the scores were of other rows.
    assert data["scores"][-1]["values"] == [10, None]
    assert "twice" in refused(
        "inspect", str(pretrained), f"{pretrained}/", "--output", page
    )
