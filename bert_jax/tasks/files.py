"""Where in a directory the parts of a published dataset are."""

import os
from collections.abc import Sequence

SPLIT_NAMES = ("train", "validation", "test")


def split_file(
    name: str, directory: str, published: Sequence[tuple[str, str, str]]
) -> str:
    """The file that `name` means: itself, or with `directory` a part of what is there.

    Args:
        name: a path; or, with a directory, "train", "validation" or "test".
        directory: `ExamplesConfig.path`.
        published: the names that datasets come under, as (train, validation, test).
            Those of which most are there count, the earlier of equals.

    Raises:
        FileNotFoundError: the directory, or the part, is not there.
    """
    if not directory or name not in SPLIT_NAMES:
        return name
    if not os.path.isdir(directory):
        raise FileNotFoundError(
            f"path={directory} is not a directory; give the one that holds the files."
        )
    there = set(os.listdir(directory))
    part = SPLIT_NAMES.index(name)
    best = max(published, key=lambda names: len(there & set(names)))
    if best[part] not in there:
        wanted = dict.fromkeys(names[part] for names in published if names[part])
        raise FileNotFoundError(
            f"path={directory} has no {name} file; looked for {', '.join(wanted)}. "
            "Rename it, or give files instead of path."
        )
    return os.path.join(directory, best[part])
