"""Stands for `gcloud storage`: ls with wildcards, cat, cp from standard input, rm."""

import sys
from pathlib import Path

from world import WORLD, local, log

BUCKETS = WORLD / "gs"


def found(pattern: str) -> list[Path]:
    """What is there of a pattern of gs://; gcloud ends with 1 where that is nothing."""
    paths = sorted(BUCKETS.glob(pattern.removeprefix("gs://")))
    if not paths:
        print("ERROR: One or more URLs matched no objects.", file=sys.stderr)
        sys.exit(1)
    return paths


def main(verb: str, *arguments: str) -> None:
    log("storage", verb=verb)
    if verb == "ls":
        for path in found(arguments[0]):
            print(f"gs://{path.relative_to(BUCKETS)}")
    elif verb == "cat":
        print(found(arguments[0])[0].read_text(), end="")
    elif verb == "rm":
        found(arguments[0])[0].unlink()
    elif verb == "cp" and arguments[0] == "-":
        target = local(arguments[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(sys.stdin.read())
    else:
        sys.exit(f"no such command: {verb} {arguments}")
