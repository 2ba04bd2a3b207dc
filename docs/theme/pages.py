"""Hooks of MkDocs: pages from the repository's root, and links to its other files.

A link of a page to a file that is no page, such as `../examples/own_loop.py`, works on
GitHub; in the site it becomes a link to the file in the repository. The page of the
command line gets the help of every verb.
"""

import contextlib
import io
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_SOURCES = {page: name for name, page in ROOT_PAGES.items()}
_LINK = re.compile(r"\[([^][]*)\]\((?![a-z]+:|#|/)([^()\s#]+)(#[^()\s]*)?\)")


def help_sections() -> Iterator[str]:
    """Yield a section for each verb: its help."""
    from bert_jax.cli.main import run_verb
    from bert_jax.cli.verbs import VERBS

    os.environ["COLUMNS"] = "80"
    for name in VERBS:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            run_verb([*name.split(), "--help"])
        yield f"\n## {name}\n\n```text\n{text.getvalue().strip()}\n```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rewrite links as they are in the repository to links of the site."""
    uri = page.file.src_uri
    if uri == "reference/command_line.md":
        return markdown + "".join(help_sections())
    source = _SOURCES.get(uri, f"docs/{uri}")

    def rewritten(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        if path in ROOT_PAGES:
            target = ROOT_PAGES[path]
        elif path.startswith("docs/") and files.get_file_from_path(path[5:]):
            target = path[5:]
        elif (ROOT / path).exists():
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"[{text}]({config.repo_url}/{kind}/main/{path}{anchor})"
        else:
            return match[0]  # which MkDocs reports
        if text.endswith(".md"):  # the name of a file, where the site has a title
            text = (ROOT / path).read_text(encoding="utf-8").split("\n")[0].lstrip("# ")
        target = posixpath.relpath(target, posixpath.dirname(uri))
        return f"[{text}]({target}{anchor})"

    return _LINK.sub(rewritten, markdown)
