"""Bad inputs: what to train on and from, and numbers out of range."""

import json
import shutil
from pathlib import Path

from bad_case import Case, World
from option_commands import finetune as tuned
from option_commands import pretrain, words
from task_commands import Command, file, finetune

GOOD = "text,label\n" + "".join(
    f"The {who} reads.,{who}\n" for who in ("judge", "clerk") * 10
)


def without_file(task: str, *options: str) -> Command:
    return lambda world: [
        *("finetune", task, "--init-from", str(world.encoder)),
        *("--workdir", str(world.folder / "run"), "--data.max-length", "32"),
        *(option.replace("WORLD", str(world.folder)) for option in options),
    ]


TUNING = {
    "task-misspelled": (
        "'text-clasification' is neither a task (text-",
        finetune(GOOD, task="text-clasification"),
    ),
    "no-configuration": (
        "none.py is not a file; name a configuration",
        finetune(GOOD, task="none.py"),
    ),
    "no-source": (
        "init_from is empty; pass --init-from with",
        finetune(GOOD, "--init-from", ""),
    ),
    "source-of-no-directory": (
        "nowhere does not exist; name a workdir",
        finetune(GOOD, "--init-from", "nowhere"),
    ),
    "no-training-file": (
        "data.train is empty; pass --data.train",
        without_file("text-classification"),
    ),
    "training-file-of-no-name": (
        "none.csv is not a file",
        without_file("text-classification", "--data.train", "none.csv"),
    ),
    "shape-of-another-model": (
        "model.hidden_size=32 but",
        finetune(GOOD, "--model.hidden-size", "32", "--model.num-attention-heads", "1"),
    ),
    "text-column-unlike-any": (
        "train.csv, line 2 has no reveiw; its columns are text, label.",
        finetune(GOOD, "--text-column", "reveiw"),
    ),
    "label-column-near-miss": (
        "train.csv, line 3 has no lable; its columns are text, label. Did you",
        finetune(GOOD, "--label-column", "lable"),
    ),
    "columns-unnamed": (
        "train.csv, line 2 has the columns body, label; name those",
        finetune(GOOD.replace("text,", "body,")),
    ),
    "one-row": (
        "leaves 1 of 1 examples to learn from and 0 to score",
        finetune("text,label\na,b\n"),
    ),
    "a-class-for-each-row": (
        "Each has a class of its own; amounts are for `bert-jax finetune text-regr",
        finetune("text,label\n" + "".join(f"Row {i}.,{i / 8}\n" for i in range(30))),
    ),
    "words-for-numbers": (
        "label='judge' must be a finite",
        finetune(GOOD, task="text-regression"),
    ),
    "field-missing-in-validation": (
        "dev.csv, line 3 has 1 fields",
        lambda world: finetune(
            GOOD,
            "--data.validation",
            file(world, "dev.csv", "text,label\nThe judge.,judge\nThe clerk.\n"),
        )(world),
    ),
    "glue-of-no-name": (
        "no task of GLUE is named; name one",
        without_file("text-classification", "--data.path", "WORLD"),
    ),
    "glue-with-columns": (
        "rte is read from GLUE's own files, whose columns are known; leave --text-col",
        without_file("rte", "--data.path", "WORLD", "--text-column", "a", "b"),
    ),
    "glue-without-files": (
        "has neither RTE/train.tsv nor train.tsv",
        without_file("rte", "--data.path", "WORLD"),
    ),
    "no-task": (
        "finetune needs a task or a configuration first, as in",
        words("finetune"),
    ),
    "no-task-but-a-workdir": (
        "finetune needs a task or a configuration first, as in",
        words("finetune", "--workdir", "WORLD/run"),
    ),
    "no-workdir": ("--workdir is missing", words("finetune", "mrpc")),
}
RANGES = {
    "--masking.rate=1.0": "rate=1.0 must be between 0 and 1",
    "--masking.mask-share=1.1": "mask_share=1.1 must be from 0 to 1",
    "--masking.random-share=0.3": "must add up to at most 1",
    "--masking.span-probability=0": "span_probability=0.0 must be above 0",
    "--masking.max-span=0": "max_span=0 must be",
    "--mesh.fsdp=0": "fsdp=0 must be",
    "--mesh.tensor=8": "mesh.tensor=8 does not divide model.num_attention_heads",
    "--microbatches=0": "microbatches=0 must be",
    "--num-steps=-1": "num_steps=-1 must be",
    "--seed=-1": "seed=-1 must be from 0",
}


def untuned(verb: str, model: str) -> Command:
    """A verb that computes with a model that was never fine-tuned; "": the encoder."""

    def command(world: World) -> list[str]:
        named = str(world.folder / model) if model else str(world.encoder)
        return [verb, "--model", named, "--input", file(world, "a.csv", GOOD)]

    return command


def in_directory_of(name: str, verb: str, *options: str) -> Command:
    """A run in a copy of what `World` has of this name, or in a directory below it."""

    def command(world: World) -> list[str]:
        top, _, below = name.partition("/")
        place = shutil.copytree(getattr(world, top) / below, world.folder / "taken")
        make = pretrain(*options) if verb == "pretrain" else finetune(GOOD, *options)
        line = make(world)
        line[line.index("--workdir") + 1] = str(place)
        return line

    return command


def in_published_model(verb: str) -> Command:
    """A run in the directory of a model whose config.json is of another program."""
    make = pretrain() if verb == "pretrain" else finetune(GOOD)

    def command(world: World) -> list[str]:
        (world.folder / "run").mkdir()
        file(world, "run/config.json", '{"model_type": "bert", "hidden_size": 16}')
        file(world, "run/model.safetensors", b"weights")
        return make(world)

    return command


def several(world: World) -> Path:
    """The directory of several runs, in the case's own folder."""
    run = {"name": "a", "setting": "s", "seed": 0, "scores": {"accuracy": 1.0}}
    values = {"config": {}, "best": "a", "settings": [], "runs": [run]}
    (world.folder / "run").mkdir()
    file(world, "run/runs.json", json.dumps(values))
    return world.folder / "run"


def among_several(table: str) -> Command:
    """A run in the directory of several."""

    def command(world: World) -> list[str]:
        several(world)
        return finetune(table)(world)

    return command


TAKEN = {
    "dataset": ("a dataset or a checkpoint (manifest.json)", "dataset", "pretrain"),
    "own-dataset": (
        "a dataset or a checkpoint (manifest.json); a run would write its files among",
        "dataset",
        "pretrain",
        "--data.path=WORLD/taken",
    ),
    "dataset-finetune": ("a dataset or a checkpoint", "dataset", "finetune"),
    "dataset-of-runs": (
        "a dataset or a checkpoint (manifest.json)",
        "dataset",
        "finetune",
        "--seeds=2",
    ),
    "checkpoint": (
        "a dataset or a checkpoint (manifest.json)",
        "run/checkpoints/10",
        "pretrain",
    ),
    "own-checkpoint": (
        "a dataset or a checkpoint (manifest.json)",
        "run/checkpoints/10",
        "finetune",
    ),
}
CASES = [
    *[
        Case(f"taken-{name}", in_directory_of(*place), ("another --workdir", says))
        for name, (says, *place) in TAKEN.items()
    ],
    *[
        Case(
            f"taken-model-{verb}",
            in_published_model(verb),
            ("is the directory of a model (config.json)", "another --workdir"),
        )
        for verb in ("pretrain", "finetune")
    ],
    *[Case(f"tuning-{name}", make, (says,)) for name, (says, make) in TUNING.items()],
    *[
        Case(
            f"range-{option[2:]}",
            words("pretrain", option, "--workdir", "WORLD/run"),
            (says,),
        )
        for option, says in RANGES.items()
    ],
    Case(
        "untuned-predict",
        untuned("predict", ""),
        ("belongs to no task; fine-tune it by `bert-jax finetune`",),
    ),
    *[
        Case(
            f"model-of-no-name-{verb}",
            untuned(verb, "none"),
            ("none does not exist; name a workdir",),
        )
        for verb in ("evaluate", "predict")
    ],
    Case(
        "frozen-layers-beyond-the-last",
        pretrain("--optimizer.frozen-layers", "13"),
        ("frozen_layers=13 but the model has 12 layers; pass at most that",),
    ),
    Case(
        "frozen-layers-drawn-anew",
        tuned("--reinitialise-layers", "1", "--optimizer.frozen-layers", "1"),
        ("reinitialise_layers=1 and optimizer.frozen_layers=1 overlap", "lower one"),
    ),
    Case(
        "frozen-layers-from-scratch",
        tuned("--from-scratch", "--optimizer.frozen-layers", "1"),
        ("from_scratch=True and optimizer.frozen_layers=1 overlap", "leave it out"),
    ),
    Case(
        "frozen-layers-of-a-new-model",
        pretrain("--optimizer.frozen-layers", "1"),
        ("optimizer.frozen_layers=1 without init_from", "name a model"),
    ),
    Case(
        "warmup-share-beside-steps",
        pretrain("--optimizer.warmup-share", "0.05"),
        ("--optimizer.warmup-share=0.05 has no effect with", "give one of them"),
    ),
    Case(
        "warmup-share-beside-steps-finetune",
        tuned("--optimizer.warmup-share=0.3", "--optimizer.warmup-steps=2"),
        ("--optimizer.warmup-share=0.3 has no effect with", "give one of them"),
    ),
    Case(
        "state-of-another-optimizer",
        lambda world: pretrain(
            *("--init-from", str(world.run), "--num-steps", "12"),
            *("--keep-optimizer", "--optimizer.algorithm", "lamb"),
        )(world),
        ("has the state of adamw and optimizer.algorithm=lamb; leave the option out",),
    ),
    Case(
        "seeds-past-the-last",
        tuned("--seed", "4294967295", "--seeds", "2"),
        ("seeds=2 from seed=4294967295 on end at 4294967296", "give fewer"),
    ),
    *[
        Case(f"dry-run-{name}", tuned("--dry-run", *options), says)
        for name, options, says in (
            (
                "own-metrics",
                ("--compute-metrics", "nosuch:f"),
                ("nosuch:f cannot be imported",),
            ),
            (
                "sweep",
                ("--sweep", "--seed", "4294967295", "--seeds", "2"),
                ("seeds=2 from seed=4294967295",),
            ),
        )
    ],
    Case(
        "run-among-several",
        among_several(GOOD),
        ("is the directory of several runs (runs.json)", "Choose another --workdir"),
    ),
    Case(
        "several-in-a-run",
        lambda world: finetune(
            *(GOOD, "--seeds", "2", "--workdir", str(world.classifier)),
        )(world),
        ("is that of one run, and seeds or a sweep make several", "choose another"),
    ),
    Case(
        "fork-among-several",
        lambda world: [
            *("fork", str(several(world)), "--at", "8"),
            *("--output", str(world.folder / "new")),
        ],
        ("holds several runs; name one of them, such as",),
    ),
    Case(
        "dry-run-of-another-run",
        lambda world: finetune(
            *(GOOD, "--dry-run", "--workdir", str(world.classifier), "--seed", "3"),
        )(world),
        ("belongs to another run", "seed was 0 and is 3"),
    ),
    Case(
        "fewer-rows-than-a-batch",
        pretrain("--batch-size", "4000"),
        ("training rows, fewer than batch_size=4000",),
    ),
]
