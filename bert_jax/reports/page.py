"""One self-contained web page of a report: tables, charts and the worst examples."""

import dataclasses
import json
from pathlib import Path

from bert_jax.reports.report import sections
from bert_jax.reports.web_page import SUFFIX, web_page
from bert_jax.storage.files import JsonObject, atomic_write, require_output_file

JSON_SUFFIX = ".json"


def require_report_file(page: Path) -> None:
    """Raise ValueError or OSError if the files of a report cannot be written."""
    require_output_file(page, SUFFIX)
    require_output_file(page.with_suffix(JSON_SUFFIX), JSON_SUFFIX)


def write_report(report: JsonObject, page: Path) -> list[Path]:
    """Write a report as a web page, and as JSON beside it; return both paths.

    Raises:
        ValueError: `page` does not end in .html.
        OSError: a file cannot be written.
    """
    require_report_file(page)
    values = page.with_suffix(JSON_SUFFIX)
    content = json.dumps(report, indent=1, allow_nan=False) + "\n"
    # A name of a file may hold bytes that are no UTF-8.
    drawn = report_page(report).encode(errors="replace")
    atomic_write(values, content.encode())
    atomic_write(page, drawn)
    return [page, values]


def report_page(report: JsonObject) -> str:
    """Return the page as HTML; all texts are escaped."""
    data = {"sections": [dataclasses.asdict(section) for section in sections(report)]}
    fields = {
        "checkpoint": report["checkpoint"],
        "file": report["data"],
        "summary": _summary(report),
    }
    return web_page("bert_jax.reports", "error_report.html", fields, data)


def _summary(report: JsonObject) -> str:
    """Return the number of examples and the first score."""
    name, value = next(iter(report["scores"].items()))
    return f"{report['num_examples']:,} examples, {name} {value:.4g}"
