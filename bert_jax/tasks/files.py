"""The files of a published dataset's splits."""

import os
from collections.abc import Sequence

SPLIT_NAMES = ("train", "validation", "test")


def split_file(
    name: str, directory: str, published: Sequence[tuple[str, str, str]]
) -> str:
    """Return the file of a split in `directory`, or `name` itself if it is a path.

    Args:
        name: "train", "validation" or "test" if there is a directory, else a path.
        directory: `ExamplesConfig.path`.
        published: file names of known datasets, as (train, validation, test). The
            dataset with the most files in the directory is used, the first if equal.

    Raises:
        FileNotFoundError: the directory does not exist, or has no file of the split.
    """
    if not directory or name not in SPLIT_NAMES:
        return name
    if not os.path.isdir(directory):
        raise FileNotFoundError(
            f"path={directory} is not a directory; give the one that holds the files."
        )
    existing = set(os.listdir(directory))
    index = SPLIT_NAMES.index(name)
    best = max(published, key=lambda names: len(existing & set(names)))
    if best[index] not in existing:
        candidates = dict.fromkeys(names[index] for names in published if names[index])
        raise FileNotFoundError(
            f"path={directory} has no {name} file; looked for {', '.join(candidates)}. "
            "Rename it, or give files instead of path."
        )
    return os.path.join(directory, best[index])
