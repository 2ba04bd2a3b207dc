"""The documentation site: its pages, its reference, and that it builds strictly."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import bert_jax
from bert_jax.cli.help import TASKS
from bert_jax.cli.main import run_verb
from bert_jax.cli.verbs import GROUPS, VERBS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
REFERENCE = "".join(
    path.read_text(encoding="utf-8") for path in sorted((DOCS / "reference").iterdir())
)
DESCRIBED = re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE)
"""The names that the reference describes."""


def documented_options() -> dict[str, set[str]]:
    """The options with which README.md and the pages show each verb."""
    options: dict[str, set[str]] = {}
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = re.sub(r"\\\n *", "", path.read_text(encoding="utf-8"))
        for command in re.findall(r"^ {4}bert-jax (\S.*)$", text, re.M):
            command = re.split(r" -- | #", command)[0]
            words = command.split()
            verb = " ".join(words[: 2 if words[0] in GROUPS else 1])
            found = re.findall(r"(?<= )--[a-z][a-z.-]*", command)
            options.setdefault(verb, set()).update(found)
    return options


OPTIONS = documented_options()


def pages_of(node: object) -> list[str]:
    """The files of a part of the navigation, in order."""
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node
    return [page for child in children for page in pages_of(child)]


def root_pages() -> dict[str, str]:
    """The table of the hooks: a file of the repository's root, and its page."""
    text = (DOCS / "theme" / "pages.py").read_text(encoding="utf-8")
    table = text[text.index("ROOT_PAGES = {") :].partition("}")[0]
    return dict(re.findall(r'"(\S+)": "(\S+)"', table))


def test_the_navigation_has_every_page_once():
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    own = root_pages()
    assert all((ROOT / name).is_file() for name in own)
    assert not files & set(own.values()), "a page twice"
    pages = pages_of(SITE["nav"])
    assert sorted(pages) == sorted({*files, *own.values()}), "add it to mkdocs.yml"


def test_every_public_name_is_in_the_reference():
    described = [name.removeprefix("bert_jax.") for name in DESCRIBED]
    assert len(described) == len(set(described))
    assert not set(bert_jax.__all__) - set(described), "add it to docs/reference"


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_the_reference_describes_exists(name):
    module, _, attribute = name.rpartition(".")
    assert (getattr(importlib.import_module(module), attribute).__doc__ or "").strip()


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_commands_of_the_pages_exist(verb, capsys):
    assert verb in VERBS
    run_verb([*verb.split(), "--help-all"])
    text = capsys.readouterr().out
    missing = [name for name in OPTIONS[verb] if not re.search(rf"{name}[ ,]", text)]
    assert missing == []


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_a_page_with_its_help(task):
    text = (DOCS / "tasks" / f"{task.replace('-', '_')}.md").read_text("utf-8")
    assert text.count("<!-- help -->") == 1 and f"finetune {task} --help" in text


def test_the_pages_show_the_verbs_with_options():
    shown = {verb for verb, options in OPTIONS.items() if options}
    assert {"vocab", "prepare", "pretrain", "finetune", "predict"} < shown
    assert "--optimizer.warmup-steps" in OPTIONS["pretrain"], "of a continued line"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("early stopping", "finetuning.md"),
        ("NER", "tasks/token_classification.md"),
        ("fill mask", "index.md"),
        ("out of memory", "pretraining.md"),
        ("push hub", "interop.md"),
        ("rare classes", "finetuning.md"),
        ("multi-label", "finetuning.md"),
        ("hyperparameter search", "finetuning.md"),
        ("embeddings", "sentences.md"),
    ],
)
def test_a_heading_has_the_words_that_are_searched_for(words, page):
    """Words of headings count most in the search."""
    text = (DOCS / page).read_text("utf-8")
    headings = re.findall("^#+ (.*)$", text, re.M)
    assert [h for h in headings if all(re.search(w, h, re.I) for w in words.split())]


def test_the_search_finds_a_name_in_a_program():
    options = next(plugin["search"] for plugin in SITE["plugins"] if "search" in plugin)
    text = (DOCS / "migrating.md").read_text("utf-8")
    words = set(re.split(options["separator"], text))
    assert {"from_pretrained", "early_stopping_patience", "0.1"} <= words


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the site of the repository, or of a copy of its configuration."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_site_builds_strictly_and_needs_no_network(tmp_path):
    pytest.importorskip("material", reason="needs the extra docs")
    result = build(tmp_path / "site")
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(pages_of(SITE["nav"])) - 1
    loads = r'(?:src="|<link rel="stylesheet" href=")(https?:[^"]+)'
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert re.findall(loads, text) == [], path
        assert 'data-md-component="source"' not in text, "it would ask GitHub's API"
        assert not re.findall(r'href="https?:[^"]*bert[-_]jax', text), path
    finetuning = (tmp_path / "site" / "finetuning.html").read_text()
    assert '<code><span class="word">--label-column</span></code>' in finetuning
    migrating = (tmp_path / "site" / "migrating.html").read_text()
    assert 'dense/</span><wbr><span class="word">kernel</span>' in migrating
    help_page = (tmp_path / "site" / "reference" / "command_line.html").read_text()
    assert all(f"usage: bert-jax {name} " in help_page for name in VERBS)
    for task in TASKS:
        name = task.replace("-", "_")
        page = (tmp_path / "site" / "tasks" / f"{name}.html").read_text()
        assert f"usage: bert-jax finetune {task} [OPTIONS]" in page
        assert "--data.train  " in page and "--help-all` lists all" in page


@pytest.mark.slow
@pytest.mark.parametrize("link", ["missing.md", "data.md#missing", "../missing.py"])
def test_a_broken_link_is_an_error(tmp_path, link):
    pytest.importorskip("material", reason="needs the extra docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "data.md").write_text("# Data\n")
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n[a]({link})\n")
    config = {key: SITE[key] for key in ("site_name", "strict", "validation")}
    config |= {"hooks": [str(DOCS / "theme" / "pages.py")]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    options = ("--config-file", str(tmp_path / "mkdocs.yml"))
    result = build(tmp_path / "site", *options)
    assert result.returncode == 1
    assert link.partition("#")[0] in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("has_address", [False, True])
def test_the_addresses_of_the_site_are_those_of_setup_cfg(tmp_path, has_address):
    pytest.importorskip("material", reason="needs the extra docs")
    addresses = (
        "url = https://a.b/owner/name\n"
        "project_urls =\n    Documentation = https://c.d/name/\n"
    )
    setup = f"[metadata]\nname = x\n{addresses * has_address}"
    (tmp_path / "setup.cfg").write_text(setup)
    for name in ("mkdocs.yml", "bert_jax", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    result = build(tmp_path / "site", f"--config-file={tmp_path}/mkdocs.yml")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "site" / "data.html").read_text()
    assert ('href="https://a.b/owner/name"' in page) == has_address
    assert ('rel="canonical" href="https://c.d/name/data.html"' in page) == has_address
    assert ("owner/name" in page) == has_address
    assert "/edit/" not in page and "/blob/" not in page
