"""`bert-jax evaluate --output`: its files, its page in a browser, and its tables."""

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from predictions import classified, examples, report_of, text_task
from small_world import OBJECTS, SUBJECTS, VERBS

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import ExamplesConfig
from bert_jax.reports.report import report_page, write_report
from bert_jax.reports.terminal import print_report

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
EVIL = '</script><script>document.title = "changed"</script><b>&amp;"'
SMALL = "--data.max-length 32 --data.num-buckets 1 --batch-size 8 --num-steps 40 "
SMALL += "--mesh.data 1 --optimizer.peak-learning-rate 0.01 --eval-every 20"


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("[1000000, 1000000.5, 1000001]", ["1000000", "1000000.5", "1000001"]),
        ("[0, 2e6, 4e6]", ["0", "2 M", "4 M"]),
    ],
)
def test_the_ticks_of_an_axis_are_told_apart(values, labels):
    script = Path(bert_jax.__file__).with_name("reports") / "charts.js"
    code = f"""const document = {{ getElementById() {{}} }};
        {script.read_text()}
        console.log(JSON.stringify(labelled({values}, false).map(pair => pair[1])));"""
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, check=True)
    assert json.loads(done.stdout) == labels


def write_table(path: Path, labels: list[str]) -> Path:
    """Rows whose texts and whose second class are HTML."""
    texts = [
        f"The {SUBJECTS[i % 4]} {VERBS[i % 5]} the {OBJECTS[i % 7]} {EVIL}"
        for i in range(len(labels))
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *zip(texts, labels, strict=True)]
        )
    return path


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, encoder_checkpoint) -> Path:
    """The workdir of a classifier of two classes, beside its validation file."""
    folder = tmp_path_factory.mktemp("tuned")
    labels = ["!no", EVIL] * 20
    labels[7], labels[20], labels[33] = labels[8], labels[21], labels[34]
    table = write_table(folder / "all.csv", labels)
    files = ["--data.train", str(table), "--data.validation", str(table)]
    where = ["--workdir", str(folder / "run"), "--init-from", str(encoder_checkpoint)]
    command = ["finetune", "text-classification", *where, *files, *SMALL.split()]
    assert main(command) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def page(tuned) -> Path:
    path = tuned.parent / "report.html"
    command = ["evaluate", "--model", str(tuned), "--output", str(path)]
    assert main(command) == 0
    return path


def data_of(page: Path) -> dict[str, Any]:
    """The data that the script of a page reads."""
    pattern = '<script type="application/json" id="data">(.*)</script>'
    (data,) = re.findall(pattern, page.read_text())
    assert "<" not in data
    values: dict[str, Any] = json.loads(data, parse_constant=pytest.fail)
    return values


def test_scores_are_printed_as_before_and_the_tables_on_standard_error(
    tuned, tmp_path, capfd
):
    path = tmp_path / "r.html"
    command = ["evaluate", "--model", str(tuned), "--output", str(path)]
    assert main([*command, "--output", str(tmp_path)]) == 0
    output, error = capfd.readouterr()
    scores, *files = output.splitlines()
    names = list(json.loads(scores))
    assert names[:3] == ["accuracy", "macro_f1", "mcc"] and "f1" not in names
    assert files == [
        str(tmp_path / name) for name in ("predictions.tsv", "r.html", "r.json")
    ]
    for title in ("Scores by class", "Confusion matrix", "The default, and the best"):
        assert title in error
    assert "expected calibration error (ECE) is" in error
    report = json.loads((tmp_path / "r.json").read_text())
    wrong = f"{report['num_wrong']} of 40 texts are wrong"
    assert wrong in " ".join(error.split())


def test_the_report_in_python_is_the_file(tuned, page):
    values = json.loads(page.with_suffix(".json").read_text())
    report = bert_jax.evaluation_report(tuned)
    assert json.loads(json.dumps(report)) == values
    scores, files = bert_jax.evaluate(tuned, report=page.parent / "again.html")
    rule = "baseline: accuracy of the commonest label"
    assert scores == values["scores"] | {rule: 21 / 40} and values["num_examples"] == 40
    assert files == [str(page.parent / name) for name in ("again.html", "again.json")]
    again = bert_jax.error_page(tuned, page.parent / "again.html")
    assert str(again) == files[0] and data_of(again) == data_of(page)
    assert values["positive_class"] == EVIL
    loaded = bert_jax.load(tuned)
    for model in (loaded, loaded.model):
        own = [{"text": "The judge reads.", "label": "!no"}]
        scores, _ = bert_jax.evaluate(model, own)
        assert scores.keys() >= {"accuracy", rule}
    assert values["data"] == str(page.parent / "all.csv")


def test_the_best_threshold_gives_its_score(tuned, page, capsys):
    """What the report says of it is what `predict --threshold` then does."""
    best = json.loads(page.with_suffix(".json").read_text())["threshold"]["best"]
    source = ["--input", str(page.parent / "all.csv"), "--columns", "label"]
    threshold = ["--threshold", str(best["threshold"])]
    assert main(["predict", "--model", str(tuned), *source, *threshold]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    pairs = [(row["label"], row["predicted_label"]) for row in rows]
    hits = pairs.count((EVIL, EVIL))
    gold, chosen = (sum(pair[i] == EVIL for pair in pairs) for i in (0, 1))
    assert best["recall"] == hits / gold and best["precision"] == hits / chosen
    assert best["f1"] == pytest.approx(2 * hits / (chosen + gold))
    assert 0 < chosen < 40


def test_a_page_is_complete_and_closed(page):
    """All texts are escaped, nothing is loaded, and no other script may run."""
    content = page.read_text()
    assert "{{" not in content and "http:" not in content and "https:" not in content
    assert "default-src 'none'" in content and EVIL not in content
    assert content.count("</script>") == 2
    for kind in ("script", "style"):
        (own,) = re.findall(f"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in content
    data = data_of(page)
    titles = [section["title"] for section in data["sections"]]
    assert titles[:3] == ["Scores", "Classes", "Confusions"]
    assert titles[3:] == ["Calibration", "Threshold", "Worst examples"]


def test_names_in_a_page_are_text():
    report = report_of(text_task(), examples("bad"), classified(0.9))
    content = report_page(report | {"checkpoint": EVIL, "data": EVIL})
    assert EVIL not in content and content.count("&lt;/script&gt;") == 6


def browse(page: Path, folder: Path) -> str:
    """The document after its scripts; fails if one of them reported an error."""
    words = "--headless --no-sandbox --disable-gpu --no-first-run --dump-dom".split()
    quiet = "--disable-background-networking --disable-sync --disable-component-update"
    log = "--enable-logging=stderr --v=0 --virtual-time-budget=10000"
    command = [str(CHROMIUM), *words, *quiet.split(), *log.split()]
    command.append(f"--user-data-dir={folder / 'profile'}")
    done = subprocess.run([*command, page.as_uri()], capture_output=True, timeout=120)
    assert "CONSOLE" not in done.stderr.decode(errors="replace"), done.stderr
    return done.stdout.decode()


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.mark.browser
@needs_browser
def test_a_page_in_a_browser(page, tmp_path):
    content = browse(page, tmp_path)
    report = json.loads(page.with_suffix(".json").read_text())
    assert "<title>changed" not in content and "<title>Errors of" in content
    assert content.count("<article>") == min(report["num_wrong"], 10)
    assert content.count("<figure>") == 2 and content.count("<polyline") >= 4
    assert "&lt;/script&gt;&lt;script&gt;" in content
    accuracy = next(iter(report["scores"].values()))
    assert f">{float(f'{accuracy:.4g}'):g}</td>" in content
    captions = re.findall("<caption>(.*?)</caption>", content)
    assert captions == [
        "Official scores",
        "Scores by class",
        "Confusion matrix",
        "Bins",
        "The default, and the best F1",
    ]
    # Each cell has a header of its row and of its column.
    assert content.count('scope="row"') >= 10 and content.count('scope="col"') >= 10


CLICKS = """<pre id="clicked"></pre><script>
const log = text => document.getElementById("clicked").textContent += text + "\\n";
const texts = list => [...list].map(made => made.textContent).join(" | ");
const rows = () => texts(document.querySelectorAll("#classes ~ .parts tbody th"));
log(rows());
const sort = document.querySelectorAll("#classes ~ .parts thead button")[3];
sort.click();
log(rows());
log(sort.parentElement.getAttribute("aria-sort"));
const cell = document.querySelector(".matrix button");
log(cell.getAttribute("aria-label"));
cell.click();
log(texts(document.querySelectorAll("article .passage")));
const chart = document.querySelector("svg[tabindex]");
chart.focus();
chart.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
log(document.querySelector(".read").textContent);
</script></body>"""


@pytest.mark.browser
@needs_browser
def test_a_page_is_used_by_buttons_and_keys(tmp_path):
    """Without the policy, which would forbid the test's own script."""
    labels = ("a", "b", "c")
    values = [
        {
            "label": own,
            "probabilities": {name: 0.2 + 0.4 * (name == own) for name in labels},
        }
        for own in ("a", "b", "b", "c", "a")
    ]
    report = report_of(text_task(labels), examples("a", "a", "b", "c", "c"), values)
    (page, _) = write_report(report, tmp_path / "page.html")
    content = re.sub('<meta http-equiv="Content.*?>', "", page.read_text())
    page.write_text(content.replace("</body>", CLICKS))
    (clicked,) = re.findall(
        '<pre id="clicked">(.*?)</pre>', browse(page, tmp_path), re.S
    )
    before, after, order, label, shown, read, *_ = clicked.split("\n")
    averages = "macro average | weighted average"
    assert before == f"a | b | c | {averages}"
    # F1: 1/2, 2/3 and 2/3; of equal ones the order stays.
    assert after == f"b | c | a | {averages}" and order == "descending"
    assert label == "1: show examples of a predicted as b"
    assert shown == "text 1"
    assert read.startswith("Probability of the predicted class 60.0 %: is right 60.0 %")


def test_what_a_terminal_shows(capfd):
    """Of many classes the first ones, the averages, and no control characters."""
    labels = tuple(f"class {i:02}" for i in range(40)) + ("\x1b[31mred",)
    values = [{"label": labels[-1], "probabilities": dict.fromkeys(labels, 1 / 41)}]
    report = report_of(text_task(labels), examples(*labels), values * 41)
    print_report(report)
    output, error = capfd.readouterr()
    assert not output and "\x1b" not in error and "\\x1b[31mred" in error
    assert "class 29" in error and "class 31 " not in error
    assert "11 more rows are in the files of the report." in error
    assert "weighted average" in error


def test_a_matrix_of_few_classes_is_printed(capfd):
    report = report_of(text_task(), examples("bad", "good"), classified(0.9, 0.8))
    print_report(report)
    lines = capfd.readouterr().err.splitlines()
    (row,) = (line for line in lines if re.match(r"│ bad +│ +0 │ +1 │", line))
    assert row
    assert any("text: text 0" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", "report.pdf must end in .html"),
        ("no/report.html", "no is not a directory; make it first"),
        ("gs://bucket/report.html", "only a local file can be written"),
    ],
)
def test_a_report_that_cannot_be_written(name, message, tuned, tmp_path, refused):
    path = name if "://" in name else str(tmp_path / name)
    where = ("evaluate", "--model", str(tuned), "--output", str(tmp_path / "out"))
    assert message in refused(*where, "--output", path)
    assert not list(tmp_path.iterdir())


def test_where_the_json_would_be_a_directory(tuned, tmp_path, refused):
    (tmp_path / "report.json").mkdir()
    where = ("evaluate", "--model", str(tuned))
    message = refused(*where, "--output", str(tmp_path / "report.html"))
    assert "report.json is a directory" in message
    assert not (tmp_path / "report.html").exists()


def test_a_file_without_labels_has_no_report(tuned, tmp_path, refused):
    table = tmp_path / "new.csv"
    table.write_text("text\nThe judge reads.\n")
    where = ("evaluate", "--model", str(tuned), "--input", str(table))
    message = refused(*where, "--output", str(tmp_path / "report.html"))
    assert (
        "new.csv has no labels" in message
        and "leave out the page of --output" in message
    )
    assert list(tmp_path.iterdir()) == [table]
    data = ExamplesConfig(validation=str(table))
    with pytest.raises(ValueError, match="has no labels"):
        bert_jax.evaluation_report(tuned, data)
