"""Commands with configuration files and options, for the rows of bad inputs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bad_case import World


def config_file(world: World, text: str, name: str = "config.py") -> str:
    """A configuration file with these lines after its imports."""
    path = world.folder / name
    path.write_text("import dataclasses\nfrom bert_jax.config import *\n" + text + "\n")
    return str(path)


def pretrain(*options: str) -> Callable[[World], list[str]]:
    """A run on the good dataset, but for its options."""
    return lambda world: [
        *("pretrain", "--workdir", str(world.folder / "run")),
        *("--data.path", str(world.dataset), "--data.sequence-length", "32"),
        *("--model.vocab-size", "160", "--batch-size", "8", "--mesh.data", "1"),
        *("--optimizer.warmup-steps", "2", "--num-steps", "10"),
        *("--model.hidden-size", "16", "--model.num-attention-heads", "1"),
        *(option.replace("WORLD", str(world.folder)) for option in options),
    ]


def finetune(*options: str) -> Callable[[World], list[str]]:
    """A classifier of the good table, but for its options."""
    return lambda world: [
        *("finetune", "text-classification", "--workdir", str(world.folder / "run")),
        *("--data.train", str(world.table), "--text-column", "review"),
        *("--label-column", "who", "--data.max-length", "32"),
        *("--batch-size", "8", "--mesh.data", "1"),
        *("--init-from", str(world.encoder), *options),
    ]


def words(*arguments: str) -> Callable[[World], list[str]]:
    """A command line in which WORLD is the case's own folder."""
    return lambda world: [
        word.replace("WORLD", str(world.folder)) for word in arguments
    ]


def in_file(text: str) -> Callable[[World], list[str]]:
    """A pretraining run whose configuration file has these lines."""
    return lambda world: ["pretrain", config_file(world, text), *pretrain()(world)[1:]]


def with_text(verb: str, *options: str) -> Callable[[World], list[str]]:
    """`vocab` or `prepare` on the good corpus, but for its options."""
    return lambda world: [
        *(verb, "--input", str(world.corpus / "*.txt")),
        *("--output", str(world.folder / "out")),
        *(("--tokenizer", str(world.tokenizer)) if verb == "prepare" else ()),
        *options,
    ]


def damaged_workdir(content: str) -> Callable[[World], list[str]]:
    """Going on with a run whose config.json holds `content`."""

    def command(world: World) -> list[str]:
        shutil.copytree(world.run, world.folder / "run")
        (world.folder / "run" / "config.json").write_text(content)
        return pretrain()(world)

    return command


def checkpoint_of_another_config(
    change: Callable[[dict[str, object]], object],
) -> Callable[[World], list[str]]:
    """A checkpoint whose config.json was changed, and its manifest with it."""

    def command(world: World) -> list[str]:
        from etils import epath

        from bert_jax.storage.manifest import (
            describe_files,
            read_manifest,
            write_manifest,
        )

        step = world.folder / "10"
        shutil.copytree(world.run / "checkpoints" / "10", step)
        path = step / "config.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        root = epath.Path(step)
        manifest = read_manifest(root)
        names = [entry["path"] for entry in manifest["files"]]
        write_manifest(manifest | {"files": describe_files(root, names)}, root)
        return ["inspect", str(step)]

    return command


def file_at(name: str, content: str, *arguments: str) -> Callable[[World], list[str]]:
    """A command line after a file was put into the case's folder."""

    def command(world: World) -> list[str]:
        path = Path(world.folder / name)
        path.write_text(content)
        return words(*arguments)(world)

    return command


HUGE = "9" * 400
