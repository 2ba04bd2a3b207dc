"""Bad inputs: options, files that they name, and devices."""

from bad_case import Case
from option_commands import (
    checkpoint_of_another_config,
    damaged_workdir,
    file_at,
    finetune,
    pretrain,
    with_text,
    words,
)

OPTIONS = [
    *(
        Case(f"commas-in-{command[-2].strip('-')}", command_of(*command), says)
        for command_of, command, says in (
            (
                finetune,
                ("--text-column", "review,who"),
                ("columns are review, who; write the names of several with spaces",),
            ),
            (
                finetune,
                ("--data.labels", "judge,clerk"),
                ("names only 'judge,clerk'", "with spaces between: judge clerk"),
            ),
            (
                pretrain,
                ("--report", "csv,tensorboard"),
                ("--report=csv,tensorboard", "with spaces between: csv tensorboard"),
            ),
            (
                words,
                (*"features MODEL --input a --output b --layers".split(), "1,2"),
                ("--layers='1,2' cannot be", "with spaces between: 1 2"),
            ),
        )
    ),
    Case(
        "column-after-a-space",
        finetune("--text-column", " review"),
        ("its columns are review, who. Did you mean review?",),
    ),
    *(
        Case(
            f"option-missing-{verb.replace(' ', '-')}",
            words(*verb.split()),
            (f"{verb} needs", *needs, "--help"),
        )
        for verb, needs in {
            "vocab": ("--input", "--output"),
            "prepare": ("--input", "--output", "--tokenizer"),
            "evaluate": ("MODEL",),
            "predict": ("MODEL",),
            "features": ("MODEL", "--input", "--output"),
            "convert import": ("SRC", "--from", "--output"),
            "convert export": ("MODEL", "--to", "--output"),
            "convert extend": ("MODEL", "--output"),
            "convert average": ("RUN", "--steps", "--output"),
            "convert shrink": ("MODEL", "--layers", "--output"),
            "fork": ("RUN", "--at", "--output"),
            "inspect": ("PATH",),
        }.items()
    ),
    *(
        Case(
            f"option-unknown-{line.split()[0]}",
            words(*line.split()),
            ("does not take", *says),
        )
        for line, says in {
            "vocab --input a --output WORLD/b --vocabsize 3": (
                "--vocabsize",
                "did you mean --vocab-size?",
            ),
            "prepare --input a --output WORLD/b --tokenizer c --sequence-lenght 64": (
                "did you mean --sequence-length?",
            ),
            "pretrain --lerning-rate 3": ("--lerning-rate",),
            "finetune text-classification --num-epoch 3": (
                "did you mean --num-epochs?",
            ),
            "features --model x --input y --output WORLD/z --layer 1": (
                "did you mean --layers?",
            ),
            "inspect x --verfy": ("did you mean --verify?",),
            "demo --wrkdir x": ("did you mean --workdir?",),
            "doctor --all": ("--all",),
        }.items()
    ),
    Case(
        "logger-unknown",
        pretrain("--report", "tensorbord"),
        ("--report=tensorbord", "csv, wandb", "did you mean 'tensorboard'?"),
    ),
    Case(
        "patience-negative",
        pretrain("--patience", "-1"),
        ("patience=-1", "must"),
    ),
    Case(
        "verb-misspelt",
        words("pretrian"),
        ("'pretrian' is not a verb", "did you mean pretrain?"),
    ),
    Case("verb-of-convert", words("convert", "improt"), ("improt", "import")),
    Case("verb-with-escapes", words("pre\x1b[31mtrain"), ("is not a verb",)),
    Case("benchmark-of-nothing", words("benchmark", "x"), ("'x' must be", "train")),
    Case(
        "benchmark-model",
        words("benchmark", "train", "--model", "huge"),
        ("huge", "base"),
    ),
    Case(
        "benchmark-torch-compile-alone",
        words("benchmark", "train", "--torch-compile"),
        ("torch_compile=True has no effect without compare; pass --compare torch",),
    ),
    Case("benchmark-unknown-option", words("benchmark", "train", "--zz"), ("--zz",)),
    Case(
        "finetune-task",
        words("finetune", "text-clasification"),
        ("text-clasification", "text-classification"),
    ),
    Case("finetune-nothing", words("finetune"), ("needs a task",)),
    Case(
        "choice-masking-unit",
        pretrain("--masking.unit", "whole-word"),
        ("--masking.unit=whole-word", "did you mean 'whole_word'?"),
    ),
    Case(
        "choice-import-from",
        words("convert", "import", "x", "--from", "torch", "--output", "y"),
        ("--from=torch", "huggingface, tf1"),
    ),
    Case(
        "choice-engine",
        with_text("prepare", "--engine", "spark"),
        ("--engine=spark", "local, beam"),
    ),
    Case(
        "choice-kind",
        with_text("vocab", "--kind", "word-piece"),
        ("did you mean 'wordpiece'?",),
    ),
    Case(
        "number-steps",
        pretrain("--num-steps", "1e6"),
        ("--num-steps=1e6", "whole number"),
    ),
    Case(
        "number-rate",
        pretrain("--masking.rate", "x"),
        ("--masking.rate=x", "must be a number"),
    ),
    Case("value-missing", pretrain("--num-steps"), ("--num-steps needs a value",)),
    Case(
        "flag-with-a-word",
        pretrain("--log-examples", "false"),
        ("does not take false", "--no-"),
    ),
    Case(
        "workdir-missing",
        words("pretrain", "--data.path", "x"),
        ("--workdir is missing",),
    ),
    Case(
        "workdir-is-a-file",
        file_at("run", "mine", "pretrain", "--workdir", "WORLD/run"),
        ("data.path is empty",),
    ),
    Case(
        "data-path-missing",
        pretrain("--data.path", "WORLD/none"),
        ("none is absent or unfinished", "bert-jax prepare"),
    ),
    Case(
        "keep-optimizer",
        pretrain("--keep-optimizer"),
        ("keep_optimizer needs init_from",),
    ),
    Case("init-from-nothing", pretrain("--init-from", "WORLD/none"), ("none",)),
    Case(
        "devices-without-dry-run",
        pretrain("--devices", "8"),
        ("--devices", "--dry-run"),
    ),
    Case(
        "memory-without-devices",
        pretrain("--dry-run", "--memory-gib", "8"),
        ("--memory-gib needs --devices",),
    ),
    Case(
        "topology-without-dry-run",
        pretrain("--topology", "v5e:2x4"),
        ("--topology", "--dry-run"),
    ),
    Case(
        "topology-with-devices",
        pretrain("--dry-run", "--topology", "v5e:2x4", "--devices", "8"),
        ("--topology=v5e:2x4 has its own devices", "drop --devices"),
    ),
    Case(
        "topology-unknown",
        pretrain("--dry-run", "--topology", "v5q:2x4"),
        ("topology=v5q:2x4 must begin with v4, v5e",),
    ),
    Case(
        "topology-shape",
        pretrain("--dry-run", "--topology", "v5e:8"),
        ("topology=v5e:8 must give the chips along 2 axes", "v5e:2x2"),
    ),
    Case(
        "devices-negative",
        pretrain("--dry-run", "--devices", "-8"),
        ("--devices=-8", "greater than 0"),
    ),
    Case(
        "memory-infinite",
        pretrain("--dry-run", "--devices", "8", "--memory-gib", "inf"),
        ("--memory-gib=inf",),
    ),
    Case(
        "profile-steps",
        pretrain("--profile-steps", "9:3"),
        ("profile_steps=9:3", "FIRST:LAST"),
    ),
    Case(
        "profile-steps-past-the-end",
        pretrain("--profile-steps", "9:11"),
        ("profile_steps=9:11", "10"),
    ),
    Case(
        "warmup-longer-than-the-run",
        pretrain("--optimizer.warmup-steps", "11"),
        ("optimizer.warmup_steps=11", "lower"),
    ),
    Case(
        "decay-shorter-than-the-run",
        pretrain("--optimizer.decay-steps", "9"),
        ("optimizer.decay_steps=9", "num_steps=10"),
    ),
    Case(
        "mesh-fsdp",
        pretrain("--mesh.fsdp", "3"),
        ("mesh.fsdp=3 does not divide model.hidden_size=16",),
    ),
    Case(
        "mesh-tensor",
        pretrain("--mesh.tensor", "2"),
        ("mesh.tensor=2 does not divide",),
    ),
    Case(
        "mesh-of-more-devices",
        pretrain("--mesh.data", "999"),
        ("mesh.data=999", "devices"),
    ),
    Case(
        "batch-size-of-microbatches",
        pretrain("--microbatches", "3"),
        ("batch_size=8", "microbatches"),
    ),
    Case(
        "heads",
        pretrain("--model.num-attention-heads", "3"),
        ("hidden_size=16 is not a multiple",),
    ),
    Case(
        "fused-attention-with-tensor-sharding",
        pretrain(
            *("--model.attention-kernel", "fused", "--mesh.tensor", "2"),
            *("--model.num-attention-heads", "2"),
        ),
        ("mesh.tensor=2", "attention_kernel=fused"),
    ),
    Case(
        "sequence-past-the-positions",
        pretrain("--model.max-position-embeddings", "16"),
        ("data.sequence_length=32", "model.max_position_embeddings=16"),
    ),
    Case(
        "head-without-pretraining",
        pretrain("--model.head", "encoder"),
        ("pretrain does not take --model.head",),
    ),
    Case(
        "masking-shares",
        pretrain("--masking.mask-share", "0.95"),
        ("mask_share=0.95", "at most 1"),
    ),
    Case("seeds-0", finetune("--seeds", "0"), ("--seeds=0", "at least 1")),
    Case("labels-twice", finetune("--data.labels", "a", "a"), ("labels has", "twice")),
    Case(
        "path-beside-files",
        finetune("--data.path", "x"),
        ("path=x and files are both given",),
    ),
    Case(
        "three-text-columns",
        finetune("--text-column", "a", "b", "c"),
        ("text_columns names 3 columns",),
    ),
    Case(
        "weights-of-another-number",
        with_text("prepare", "--weights", "1", "2"),
        ("weights has 2 numbers for 1 inputs",),
    ),
    Case(
        "beam-options-without-beam",
        with_text("prepare", "--", "--runner=X"),
        ("--engine beam",),
    ),
]
FILES = [
    *(
        Case(f"D-workdir-config-{name}", damaged_workdir(content), ("config.json",))
        for name, content in {
            "list": "[]",
            "null": "null",
            "nothing": "",
            "number": "3",
            "nested": "[" * 100_000,
            "nan": '{"model": NaN}',
            "model-is-a-list": '{"model": []}',
        }.items()
    ),
    *(
        Case(
            f"D-checkpoint-config-{name}",
            checkpoint_of_another_config(change),
            ("config.json", *says),
        )
        for name, (change, says) in {
            "without-model": (
                lambda c: {k: c[k] for k in c if k != "model"},
                ("model",),
            ),
            "model-null": (lambda c: c | {"model": None}, ("model",)),
            "model-of-text": (
                lambda c: c | {"model": {"hidden_size": "16"}},
                ("hidden_size='16'",),
            ),
            "model-of-floats": (
                lambda c: c | {"model": {"hidden_size": 16.0}},
                ("hidden_size=16.0", "whole number"),
            ),
            "model-misspelt": (
                lambda c: c | {"model": {"hiden_size": 16}},
                ("hiden_size", "did you mean 'hidden_size'?"),
            ),
            "list": (lambda c: [], ("object",)),
            "null": (lambda c: None, ("object",)),
        }.items()
    ),
    Case(
        "C3-inspect-a-path-with-escapes",
        words("inspect", "WORLD/\x1b[2J\x9b"),
        ("\\x1b[2J\\x9b is not a directory",),
    ),
    Case(
        "E-inspect-a-path-of-other-bytes",
        words("inspect", "WORLD/gr\udcf6\udcdfe"),
        ("gr\\udcf6\\udcdfe is not a directory",),
    ),
    Case(
        "E-inspect-a-path-of-UTF-8",
        words("inspect", "WORLD/gr\udcc3\udcb6\udcc3\udc9fe"),
        ("größe is not a directory",),
    ),
    Case(
        "E-no-such-input",
        words(
            "features",
            "--model",
            "WORLD/none",
            "--input",
            "WORLD/a",
            "--output",
            "WORLD/b.npz",
        ),
        ("none",),
    ),
]
DEVICES = [
    Case(
        f"D-JAX_PLATFORMS-{platform}-{command[0]}",
        words(*command),
        ("JAX_PLATFORMS", platform),
        environment={"JAX_PLATFORMS": platform},
        process=True,
        slow=platform != "nonsense",
    )
    for platform, command in {
        "cuda": ("demo", "--workdir", "WORLD/demo"),
        "tpu": ("benchmark", "train", "--model", "tiny"),
        "nonsense": ("demo", "--workdir", "WORLD/demo"),
    }.items()
] + [
    Case(
        "D-JAX_PLATFORMS-cuda-pretrain",
        pretrain(),
        ("JAX_PLATFORMS", "cuda"),
        environment={"JAX_PLATFORMS": "cuda"},
        process=True,
    ),
    Case(
        "D-JAX_PLATFORMS-cuda-finetune",
        finetune(),
        ("JAX_PLATFORMS", "cuda"),
        environment={"JAX_PLATFORMS": "cuda"},
        process=True,
        slow=True,
    ),
    Case(
        "D-JAX_PLATFORMS-cuda-predict",
        lambda world: [
            *("predict", "--model", str(world.classifier)),
            *("--input", str(world.table)),
        ],
        ("JAX_PLATFORMS", "cuda"),
        environment={"JAX_PLATFORMS": "cuda"},
        process=True,
        slow=True,
    ),
    Case(
        "E-ascii-locale",
        words("inspect", "WORLD/größe"),
        ("is not a directory",),
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        process=True,
    ),
]

CASES = [*OPTIONS, *FILES, *DEVICES]
