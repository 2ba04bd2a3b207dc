"""Self-contained web pages: a template with its data, style and script in one file."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

SUFFIX = ".html"


def web_page(
    package: str, template: str, fields: Mapping[str, str], data: Mapping[str, Any]
) -> str:
    """Return a page that needs no network.

    Args:
        package: the package that holds the template.
        template: file name of the template. It has one <style> and one <script>, and
            {{name}} for each field, {{data}} for the data as JSON, {{style}} for the
            rules that all pages share, and {{policy}}. {{NAME.js}} or {{NAME.css}}
            stands for a file beside the template or in this package.
        fields: texts by name; they are escaped.
        data: what the script reads.

    Raises:
        KeyError: the template names a field that is not given.
    """
    own, shared = resources.files(package), resources.files("bert_jax.reports")

    def file_text(match: re.Match[str]) -> str:
        path = own.joinpath(match[1])
        path = path if path.is_file() else shared.joinpath(match[1])
        return path.read_text(encoding="utf-8")

    page = own.joinpath(template).read_text(encoding="utf-8")
    style = shared.joinpath("web_page.css").read_text(encoding="utf-8")
    page = page.replace("{{style}}", style)
    page = re.sub(r"\{\{(\w+\.(?:css|js))\}\}", file_text, page)
    # A name of a file may hold bytes that are no UTF-8.
    texts = {name: text.encode(errors="replace") for name, text in fields.items()}
    values = {name: html.escape(text.decode()) for name, text in texts.items()}
    # The page's own script and style are allowed, and neither others nor a connection.
    policy = ["default-src 'none'"]
    for kind in ("script", "style"):
        (content,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        policy.append(f"{kind}-src 'sha256-{digest}'")
    values["policy"] = "; ".join(policy)
    # No text of the data can end the element that holds it.
    values["data"] = json.dumps(data).replace("<", "\\u003c")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], page)
