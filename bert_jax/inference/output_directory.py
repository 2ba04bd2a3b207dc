"""A directory of outputs that one process writes, for one job, resumably."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from etils import epath

from bert_jax.config import BertConfig, ExamplesConfig
from bert_jax.config.serialization import to_dict
from bert_jax.inference.vector_record import JOB
from bert_jax.storage.file_lock import lock_file
from bert_jax.storage.files import (
    JsonObject,
    read_json_object,
    remove_temporaries,
    write_json,
)

INPUTS = "inputs"
"""In the record of a job: size and time of each file whose output is there."""
LOCK = ".lock"
"""In the output directory while a process writes there."""
_DEFAULTS = {"data": ExamplesConfig(), "config": BertConfig()}
"""What fields of a record are that an older version does not have."""


@contextlib.contextmanager
def locked_directory(directory: Path, option: str = "--output") -> Iterator[None]:
    """Make the directory of the outputs, and lock it while the block runs.

    If the block fails before any output, the directory is left as it was, because the
    next call may have other options. Raise FileExistsError if another process writes
    there, ValueError if it is a file.
    """
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file; choose another {option}.")
    existed = directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK
    with path.open("w") as file:
        lock_file(file, directory)
        try:
            yield
        except Exception:
            if {entry.name for entry in directory.iterdir()} == {JOB, LOCK}:
                (directory / JOB).unlink()
            raise
        finally:
            path.unlink(missing_ok=True)
            if not existed:
                with contextlib.suppress(OSError):  # it is not empty
                    directory.rmdir()


def require_same_job(
    directory: Path, record: JsonObject, option: str = "--output"
) -> JsonObject:
    """Write the record of the job, or check that it is the one in the directory.

    Return that in the directory, in which `INPUTS` are the marks of the files. Raise
    ValueError if the directory is of another job, or holds other files.
    """
    path = epath.Path(directory / JOB)
    remove_temporaries(directory, JOB)  # of a run that was killed just here
    if path.exists():
        before = read_json_object(path, "remove the directory, and begin again")
        for name, default in _DEFAULTS.items():  # it may be of an older version
            if isinstance(before.get(name), dict):
                before[name] = to_dict(default) | before[name]
        now = json.loads(json.dumps(record))
        names = [name for name in now if before.get(name) != now[name]]
        names += [name for name in before if name not in (*now, INPUTS)]
        if names:
            raise ValueError(
                f"{directory} was written with another {', '.join(names)}; repeat the "
                f"options, or choose another {option}."
            )
        return before
    if {entry.name for entry in directory.iterdir()} - {LOCK}:
        raise ValueError(
            f"{directory} exists and is not a directory of such outputs; choose "
            f"another {option}."
        )
    write_json(record, path)
    return record | {INPUTS: {}}
