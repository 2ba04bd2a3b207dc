"""What the fakes share: a folder, named by FAKE_WORLD, with a log of all calls."""

import json
import os
import sys
from pathlib import Path
from typing import Any

WORLD = Path(os.environ["FAKE_WORLD"])


def local(path: str) -> Path:
    """Where the fakes keep a path: what is on gs:// is in a folder of the world."""
    if path.startswith("gs://"):
        return WORLD / "gs" / path.removeprefix("gs://")
    return Path(path)


def read(name: str, default: Any) -> Any:
    """The JSON value of that name, or `default`."""
    path = WORLD / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else default


def write(name: str, value: Any) -> None:
    """Keep a JSON value under a name; readers never see half of it."""
    new = WORLD / f"{name}.{os.getpid()}.new"
    new.write_text(json.dumps(value))
    new.rename(WORLD / f"{name}.json")


def log(program: str, **more: Any) -> None:
    """Add this call to the log."""
    line = json.dumps({"program": program, "arguments": sys.argv[1:], **more})
    with (WORLD / "log").open("a") as file:
        file.write(line + "\n")
