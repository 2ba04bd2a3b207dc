import configparser
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data.installed_documentation import (
    InstalledLibrary,
    docstrings,
    installed_libraries,
    make_library,
    write_corpus,
)

ROOT = Path(__file__).parents[2]

HEAD = '"""This is the first sentence of the module, and it is prose."""\n'
REPEATED = '''
class A:
    """The value is 12 when it is not given by the user."""

    x: int
    """This is a sentence about an attribute of the class."""

    def method(self):
        """The value is 7 when it is  not given by the user."""
        return """This string is a value and not what documents anything."""
'''
FILES: dict[str, str | bytes] = {
    "fake/__init__.py": HEAD,
    "fake/a.py": REPEATED,
    "fake/b.py": HEAD + 'raise SystemExit("imported")\n' + 'x = "\\d"\n',
    "fake/c.py": "raise SystemExit('imported')\n"
    'def f():\n    """This one is found, for nothing at all was imported."""\n',
    "fake/latin.py": b'"""This is not UTF-8, so that it cannot be read: \xe9."""',
    "fake/broken.py": "def f(:\n",
    "fake/tests/test_a.py": '"""This is a test, so that nobody wants to read it."""',
    "fake/data.txt": "This is not a module, but it is a whole sentence.",
}


def fake_library(root: Path) -> InstalledLibrary:
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return make_library("fake", "1.0", root, FILES)


def test_docstrings_in_order() -> None:
    source = (
        '"""module"""\n'
        'topics = {"a": "several\\nlines", "b": "one line"}\n'
        'add_newdoc("f", """call\n""")\n'
        "if True:\n    def f():\n        '''function'''\n        g('''x\n''')\n"
        "else:\n    async def f():\n        '''other'''\n"
        "class A:\n    '''class'''\n    x = 1\n    '''attribute'''\n"
    )
    assert docstrings(source) == [
        "module",
        "several\nlines",
        "f",
        "call\n",
        "function",
        "other",
        "class",
        "attribute",
    ]


def test_write_corpus(tmp_path: Path) -> None:
    summary = write_corpus(tmp_path / "out", [fake_library(tmp_path)], workers=1)
    text = (tmp_path / "out" / "fake.txt").read_text()
    assert text == (
        "This is the first sentence of the module, and it is prose.\n"
        "\n"
        "The value is 12 when it is not given by the user.\n"
        "This is a sentence about an attribute of the class.\n"
        "\n"
        "This one is found, for nothing at all was imported.\n"
    )
    written = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert written == summary
    assert summary == {
        "documents": 3,
        "paragraphs": 4,
        "words": len(text.split()),
        "bytes": len(text),
        "duplicates": 2,
        "unreadable": ["fake: fake.broken", "fake: fake.latin"],
        "sha256": hashlib.sha256(f"fake\n{text}".encode()).hexdigest(),
        "libraries": {
            "fake": {
                "version": "1.0",
                "documents": 3,
                "paragraphs": 4,
                "words": len(text.split()),
            }
        },
        "modules": {"fake": ["fake", "fake.a", "fake.c"]},
    }
    assert {path.name for path in tmp_path.iterdir()} == {"fake", "out"}


def test_same_bytes_in_every_process(tmp_path: Path) -> None:
    fake_library(tmp_path)
    program = (
        "import sys; from pathlib import Path\n"
        "from bert_jax.data.installed_documentation import make_library, write_corpus\n"
        "if __name__ == '__main__':\n"
        "    root, seed, workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
        "    paths = root.rglob('fake/*.py')\n"
        "    files = {path.relative_to(root).as_posix() for path in paths}\n"
        "    libraries = [make_library('fake', '1', root, files)]\n"
        "    write_corpus(root / seed, libraries, workers)\n"
    )
    (tmp_path / "program.py").write_text(program)
    for seed, workers in (("1", "1"), ("2", "2")):
        subprocess.run(
            [sys.executable, tmp_path / "program.py", tmp_path, seed, workers],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
        )
    for name in ("fake.txt", "corpus.json"):
        first, second = (tmp_path / seed / name for seed in "12")
        assert first.read_bytes() == second.read_bytes()


def test_directory_in_use(tmp_path: Path) -> None:
    fake = fake_library(tmp_path)
    with pytest.raises(FileExistsError, match="is not an empty directory"):
        write_corpus(tmp_path / "fake", [fake], workers=1)


def test_no_prose(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No prose in empty: install"):
        write_corpus(tmp_path / "out", [InstalledLibrary("empty", "1", ())], workers=1)
    assert not (tmp_path / "out").exists()


def test_installed_libraries_are_what_setup_cfg_leads_to() -> None:
    found = {item.name: dict(item.modules) for item in installed_libraries()}
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    requirements = config["options"]["install_requires"].split("\n")
    required = {line.split(">=")[0].split("[")[0] for line in requirements if line}
    assert {name.lower() for name in required} - {
        "tensorflow",
        "tensorflow-cpu",
    } <= set(found)
    assert list(found) == sorted(found)
    assert "pydoc_data.topics" in found["python"]
    assert "numpy" in found["numpy"]
    assert "pytest" not in found
    assert not any(".tests." in name for modules in found.values() for name in modules)
