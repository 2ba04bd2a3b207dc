"""What a public project has beside its code: workflows, templates, versions."""

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
EXTRAS_OF_USERS = set(SETUP["options.extras_require"]) - set(
    "beam docs parity test dev".split()
)
"""Those whose lower bounds are tested. Apache Beam is tested as `dev` installs it; the
others are for the tests."""


def schema_of(path: Path) -> str:
    """The name of check-jsonschema's own copy of a file's schema."""
    if path.parent == GITHUB / "workflows":
        return "github-workflows"
    if path.name == "CITATION.cff":
        return "citation-file-format"
    return "github-issue-config" if path.name == "config.yml" else "github-issue-forms"


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, *FORMS, ROOT / "CITATION.cff"], ids=lambda path: path.name
)
def test_the_file_has_its_schema(path):
    command = [sys.executable, "-m", "check_jsonschema", str(path)]
    command += ["--builtin-schema", f"vendor.{schema_of(path)}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_runs_what_exists(path):
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 240
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in uses)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"run: make ([a-z]+)", text)
    assert targets or path.name == "docs.yml"
    assert all(re.search(rf"^{name}:", makefile, re.M) for name in targets)


def test_python_versions_agree():
    text = (GITHUB / "workflows" / "tests.yml").read_text(encoding="utf-8")
    tested = yaml.safe_load(text)["jobs"]["test"]["strategy"]["matrix"]["python"]
    classifiers = SETUP["metadata"]["classifiers"]
    assert tested == re.findall(r":: Python :: (3\.\d+)$", classifiers, re.M)
    assert SETUP["options"]["python_requires"] == f">={tested[0]}"


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == SETUP["metadata"]["version"]


def test_addresses_of_the_project_are_in_setup_cfg_only():
    """There the site takes them from; while it has none, no link leads nowhere."""
    named = {"url", "project_urls"} & set(SETUP["metadata"])
    assert named in (set(), {"url", "project_urls"}), "both or none"
    names = ["README.md", "mkdocs.yml", "CITATION.cff", "SECURITY.md", "pyproject.toml"]
    names += ["CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "setup.cfg"]
    folders = (GITHUB, ROOT / "docs", ROOT / "examples", ROOT / "bert_jax")
    files = [path for folder in folders for path in folder.rglob("*")]
    paths = [path for path in files if path.suffix in {".py", ".md", ".ipynb", ".yml"}]
    paths += [ROOT / name for name in names]
    own = r"https?://[^\s)\"'>]*(?:bert[-_]jax|badge|shields\.io)|git\+https?:"
    keys = "^(?:repo_url|site_url|edit_uri|repository-code)\\b"
    for path in paths:
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line for line in lines if "= https:" not in line)
        assert re.findall(f"{own}|{keys}", text, re.M) == [], path


def test_the_lowest_versions_are_the_bounds_of_the_package_and_its_extras():
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pattern = r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)(?!.*sys_platform !=)"
    extras = SETUP["options.extras_require"]
    lists = [SETUP["options"]["install_requires"], *map(extras.get, EXTRAS_OF_USERS)]
    bounds = re.findall(pattern, "\n".join(lists), re.M)
    assert set(pins) == {"jaxlib", *(name for name, _ in bounds)}
    assert pins["jaxlib"] == pins["jax"]
    assert [name for name, low in bounds if Version(pins[name]) != Version(low)] == []


def test_the_extras_that_messages_and_pages_name_are_there():
    pages = ROOT / "README.md", *(ROOT / "docs").rglob("*.md")
    text = "".join(
        p.read_text("utf-8") for p in (*pages, *ROOT.glob("bert_jax/**/*.py"))
    )
    named = set(",".join(re.findall(r"bert_jax\[([a-z\d,]+)\]", text)).split(","))
    assert "tensorboard" in named and named <= set(SETUP["options.extras_require"])


def test_make_lowest_installs_the_extras_whose_bounds_it_has():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = re.search(r"'\.\[(test,[\w,]+)\]'", makefile)[1].split(",")
    devices = {"cuda12", "cuda13", "tpu", "topologies"}
    assert set(installed) == {"test"} | EXTRAS_OF_USERS - devices
