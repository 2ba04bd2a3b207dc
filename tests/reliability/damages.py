"""Damage to the files of what was written whole, and whether it is found.

A damaged file must be detected, or be proven unused: what is loaded is the same, bit
for bit. Of a workdir with two whole checkpoints the older one must be loaded, and the
damaged one named.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from file_damages import DAMAGES, flip_bit

import bert_jax
from bert_jax.cli.main import main
from bert_jax.data.records import open_dataset


def digest_model(path: Path) -> str:
    """sha256 over all that `load` gives."""
    model = bert_jax.load(path)
    digest = hashlib.sha256(repr((model.config, model.pairs, model.embedding)).encode())
    digest.update(repr(model.data).encode() + model.tokenizer.fingerprint.encode())
    for place, leaf in jax.tree_util.tree_leaves_with_path(model.params):
        values = np.asarray(leaf)
        digest.update(f"{place} {values.dtype} {values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def digest_dataset(path: Path) -> str:
    """sha256 over all that a run takes from a dataset."""
    dataset = open_dataset(path, verify=True)
    said = json.dumps([dataset.manifest, dataset.fingerprint], sort_keys=True)
    digest = hashlib.sha256(said.encode() + dataset.tokenizer.fingerprint.encode())
    for rows in (dataset.train, dataset.validation):
        digest.update(rows.gather(np.arange(len(rows))).tobytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is damaged, and how it is read."""

    folder: str
    """Of the specimens."""
    part: str
    """The directory in it whose files are damaged."""
    digest: Callable[[Path], str]
    falls_back: bool = False
    """Whether an older checkpoint lies beside it."""


SUBJECTS = {
    "checkpoint": Subject("run", "checkpoints/10", digest_model, falls_back=True),
    "dataset": Subject("dataset", "", digest_dataset),
    "imported": Subject("encoder", "", digest_model),
    "exported": Subject("exported", "", digest_model),
}


class Damaged:
    """A copy of one subject that is damaged, judged, and mended again."""

    def __init__(self, name: str, root: Path) -> None:
        self.subject = SUBJECTS[name]
        self.original = root / "specimens" / self.subject.folder
        self.folder = root / "damaged" / name / self.subject.folder
        self.part = self.folder / self.subject.part
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.original, self.folder)
        self.good = self.subject.digest(self.folder)
        self.older = ""
        if self.subject.falls_back:
            shutil.rmtree(self.part)
            self.older = self.subject.digest(self.folder)
            assert self.older != self.good
        self.mend()
        files = sorted(path for path in self.part.rglob("*") if path.is_file())
        files = [path for path in files if path.stat().st_size]
        self.files = [path.relative_to(self.part) for path in files]
        names = {path.name: path for path in self.files if len(path.parts) == 1}
        self.manifest = names.get("manifest.json") or names["conversion.json"]

    def mend(self, whole: bool = False) -> None:
        """Copy the damaged directory anew, or all that holds it."""
        part = "" if whole else self.subject.part
        shutil.rmtree(self.folder / part, ignore_errors=True)
        shutil.copytree(self.original / part, self.folder / part)

    def damage(self, how: str, number: int) -> str:
        """Do the damage of that number; says what it was.

        Args:
            how: "flip" a bit of a file, each in turn; "manifest": a bit of it; "file":
                each of `DAMAGES` in turn.
        """
        dice = random.Random(f"{how} {number}")
        kind, name = flip_bit, self.files[number % len(self.files)]
        if how == "manifest":
            name = self.manifest
        elif how == "file":
            # Each kind of damage to other files each time.
            turn = number + number // len(DAMAGES)
            kind = DAMAGES[number % len(DAMAGES)]
            name = self.files[turn % len(self.files)]
        other = dice.choice([x for x in self.files if x != name])
        kind(self.part / name, self.part / other, dice)
        return f"{kind.__name__} {name}"

    def judge(self) -> tuple[str, str]:
        """What came of reading it: "detected", "unused", or what is wrong."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = self.subject.digest(self.folder)
            except (ValueError, OSError) as error:
                said = str(error)
                if str(self.folder) not in said:
                    return "unnamed", said
                return "refused" if self.subject.falls_back else "detected", said
        said = "; ".join(str(warning.message) for warning in caught)
        if found == self.good:
            return "unused", said
        if found == self.older:
            named = str(self.part) in said or not self.part.exists()
            return "detected" if named else "unnamed", said
        return "other values", said

    def inspected(self) -> tuple[str, str]:
        """What `inspect --verify` says of a workdir: as `judge`."""
        lines = io.StringIO()
        with contextlib.redirect_stdout(lines), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(["inspect", str(self.folder), "--verify"])
        said = lines.getvalue()
        step = self.part.name
        if code:
            return "wrong", said
        if f"checkpoint {step}: verified" in said:
            return "unused", said
        # The model that is shown below is that of the older step.
        older = f"model {self.part.parent}/" in said
        newer = f"model {self.part}," in said
        return "detected" if older and not newer else "wrong", said

    def resumed(self) -> tuple[str, str]:
        """What a run that goes on does: as `judge`. It makes the damaged step anew."""
        values = json.loads((self.original / "config.json").read_text())
        values.pop("history", None)
        values["data"]["path"] = str(self.original.with_name("dataset"))
        config = self.folder.with_name("config.py")
        config.write_text(
            "from bert_jax.config import PretrainConfig\n"
            "from bert_jax.config.serialization import from_dict\n"
            f"config = from_dict(PretrainConfig, {values!r})\n"
        )
        lines = io.StringIO()
        with contextlib.redirect_stdout(lines):
            code = main(["pretrain", str(config), "--workdir", str(self.folder)])
        said = lines.getvalue()
        if code or not (self.part / "manifest.json").exists():
            return "wrong", said
        if "Skipped a newer checkpoint" in said and str(self.part) in said:
            older = "Resuming from the checkpoint at step 8" in said
            return "detected" if older else "wrong", said
        same = self.subject.digest(self.folder) == self.good
        return "unused" if same else "wrong", said

    def answer(self, job: dict[str, Any]) -> tuple[str, str]:
        """Do the damage of a job, read it by the door that the job names, mend it."""
        door = job.get("door", "judge")
        told = self.damage(job["how"], job["number"])
        try:
            kind, said = getattr(self, door)()
        finally:
            self.mend(whole=door == "resumed")
        return kind, f"{told}: {said}"
