"""Hooks of MkDocs: pages from the repository's root, and links to its other files.

A file that is no page, such as `../examples/own_loop.py`, gets a page with its text if
another one has a link to it, a notebook one with its stored outputs; a link to a folder
becomes its name. The page of the
command line gets the help of every verb, and that of a task the help of this task. The
addresses of the site and of the repository are those of setup.cfg, if it has any.
"""

import configparser
import contextlib
import io
import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
SOURCE_PAGES = "source"
BEHIND_GUIDES = ("reference/", "changelog.md", f"{SOURCE_PAGES}/", "experiments.md")
"""Pages which the search lists after guides with the same words."""
HELP = "<!-- help -->"
"""Where the page of a task has its help."""
_SOURCES = {page: name for name, page in ROOT_PAGES.items()}
_LINK = re.compile(r"\[([^][]*)\]\((?![a-z]+:|#|/)([^()\s#]+)(#[^()\s]*)?\)")

_INLINE_CODE = re.compile(r"(<pre.*?</pre>)|<code>([^<]*)</code>", re.DOTALL)
_WORD = re.compile(r"(?<!\S)\S{1,36}(?!\S)|(?<![^\s/(])[^\s/(]{1,36}(?:[/(]+|(?!\S))")
"""A word that is not wider than a telephone, or a part of a longer one."""


def help_block(*words: str) -> str:
    """Return what `bert-jax` prints for these words, as a block."""
    from bert_jax.cli.main import run_verb

    os.environ["COLUMNS"] = "80"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        run_verb(words)
    return f"```text\n{text.getvalue().strip()}\n```\n"


def help_sections() -> Iterator[str]:
    """Yield a section for each verb: all of its options."""
    from bert_jax.cli.verbs import VERBS

    for name in VERBS:
        yield f"\n## {name}\n\n{help_block(*name.split(), '--help-all')}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the addresses of the setup.cfg beside the configuration."""
    setup = configparser.ConfigParser()
    setup.read(Path(config.config_file_path).with_name("setup.cfg"), encoding="utf-8")
    address = setup.get("metadata", "url", fallback="")
    others = setup.get("metadata", "project_urls", fallback="")
    config.repo_url = address or None
    config.repo_name = address.split("/", 3)[-1] or None
    names = dict(re.findall(r"^(\w+) *= *(\S+)$", others, re.M))
    config.site_url = names.get("Documentation")
    return config


def path_of(link: str, source: str) -> str:
    """Return the path in the repository to which a file's link leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def linked_sources(files: Files) -> set[str]:
    """Return the Python files and the notebooks to which a page has a link."""
    linked = set()
    for page in files.documentation_pages():
        source = _SOURCES.get(page.src_uri, f"docs/{page.src_uri}")
        links = (match[2] for match in _LINK.finditer(page.content_string))
        linked |= {
            path_of(link, source) for link in links if link.endswith((".py", ".ipynb"))
        }
    return {path for path in linked if (ROOT / path).is_file()}


def notebook_page(text: str) -> str:
    """Return a notebook as Markdown: its text, its code, what it printed and drew."""
    blocks = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"]).strip()
        is_code = cell["cell_type"] == "code"
        blocks.append(f"~~~~python\n{source}\n~~~~" if is_code else source)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = "".join(data["image/png"]).replace("\n", "")
                blocks.append(f"![What it draws](data:image/png;base64,{picture})")
            else:
                printed = "".join(output.get("text", data.get("text/plain", "")))
                blocks.append(f"~~~~text\n{printed.rstrip()}\n~~~~")
    return "\n\n".join(blocks) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and of the files to which pages have links."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for path in sorted(linked_sources(files)):
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".ipynb"):
            content = notebook_page(text)
        else:
            content = f"# {path}\n\n~~~~python\n{text}~~~~\n"
        uri, hidden = f"{SOURCE_PAGES}/{path}.md", InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, uri, content=content, inclusion=hidden))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have lines broken between the words of a text of code, and not inside them."""

    def with_words(match: re.Match[str]) -> str:
        block, text = match.groups()
        words = _WORD.sub(r'<span class="word">\g<0></span>', text or "")
        words = words.replace("</span><span", "</span><wbr><span")
        return block or f"<code>{words}</code>"

    return _INLINE_CODE.sub(with_words, html)


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rewrite links as they are in the repository to links of the site."""
    uri = page.file.src_uri
    if uri.startswith(BEHIND_GUIDES):
        page.meta["search"] = {"boost": 0.1}
    if uri == "reference/command_line.md":
        return markdown + "".join(help_sections())
    if uri.startswith(f"{SOURCE_PAGES}/") and not uri.endswith(".ipynb.md"):
        return markdown
    if uri.startswith("tasks/"):
        task = Path(uri).stem.replace("_", "-")
        markdown = markdown.replace(HELP, help_block("finetune", task, "--help"))
    source = _SOURCES.get(uri, f"docs/{uri}")
    if uri.endswith(".ipynb.md"):
        source = uri.removeprefix(f"{SOURCE_PAGES}/").removesuffix(".md")

    def rewritten(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        path = path_of(link, source)
        if path in ROOT_PAGES:
            target = ROOT_PAGES[path]
        elif files.get_file_from_path(f"{SOURCE_PAGES}/{path}.md"):
            target = f"{SOURCE_PAGES}/{path}.md"
        elif path.startswith("docs/") and files.get_file_from_path(path[5:]):
            target = path[5:]
        else:
            # A file or a folder of the repository; of others MkDocs reports the link.
            return text if (ROOT / path).exists() else match[0]
        if text.endswith(".md"):  # the name of a file, where the site has a title
            text = (ROOT / path).read_text(encoding="utf-8").split("\n")[0].lstrip("# ")
        target = posixpath.relpath(target, posixpath.dirname(uri))
        return f"[{text}]({target}{anchor})"

    return _LINK.sub(rewritten, markdown)
