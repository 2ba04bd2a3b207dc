"""Bad inputs: configuration files and options."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from bad_case import Case, World


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
        *("--data.train", str(world.table), "--data.text-columns", "review"),
        *("--data.label-column", "who", "--data.max-length", "32"),
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

        from bert_jax.manifest import describe_files, read_manifest, write_manifest

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
CONFIG_FILES = [
    Case(
        "B-masking-unit",
        in_file("config = PretrainConfig(masking=MaskingConfig(unit='whole-word'))"),
        ("unit='whole-word'", "whole_word"),
    ),
    Case(
        "B1-algorithm",
        in_file("config = PretrainConfig(optimizer=OptimizerConfig(algorithm='LAMB'))"),
        ("algorithm='LAMB'", "adamw, lamb", "did you mean 'lamb'?"),
    ),
    Case(
        "B1-hidden-act",
        in_file("config = PretrainConfig(model=BertConfig(hidden_act='swish'))"),
        ("hidden_act='swish'", "gelu, gelu_new, relu"),
    ),
    Case(
        "B1-attention",
        in_file("config = PretrainConfig(model=BertConfig(attention='casual'))"),
        ("did you mean 'causal'?",),
    ),
    Case(
        "B1-remat",
        in_file("config = PretrainConfig(model=BertConfig(remat='layers'))"),
        ("remat='layers'", "did you mean 'layer'?"),
    ),
    Case(
        "B1-dtype",
        in_file("config = PretrainConfig(model=BertConfig(dtype='int7'))"),
        ("dtype='int7'", "float32, bfloat16"),
    ),
    Case(
        "B1-log-examples",
        in_file("config = PretrainConfig(log_examples='false')"),
        ("log_examples='false'", "True or False"),
    ),
    Case(
        "B1-list-for-a-tuple",
        in_file("config = PretrainConfig(model=BertConfig(labels=['a', 'b']))"),
        ("labels=", "write ('a', 'b')"),
    ),
    Case(
        "B1-float-for-steps",
        in_file("config = PretrainConfig(num_steps=1e6)"),
        ("num_steps=1000000.0", "whole number"),
    ),
    Case(
        "B1-text-for-a-rate",
        in_file("o = OptimizerConfig(peak_learning_rate='1e-4')"),
        ("peak_learning_rate='1e-4'", "must be a number"),
    ),
    Case(
        "B1-dict-for-the-model",
        in_file("config = PretrainConfig(model={'hidden_size': 128})"),
        ("model={'hidden_size': 128}", "BertConfig"),
    ),
    Case(
        "B1-class-for-the-model",
        in_file("config = PretrainConfig(model=BertConfig)"),
        ("must be a BertConfig",),
    ),
    Case("B1-nul", in_file("config = PretrainConfig(init_from='a\\0b')"), ("NUL",)),
    Case(
        "B2-config-exits-0",
        in_file("import sys; sys.exit(0)"),
        ("config.py fails: SystemExit: 0", "mend"),
    ),
    Case("B2-config-exits", in_file("exit()"), ("config.py fails: SystemExit",)),
    Case(
        "D-config-raises-BaseException",
        in_file("raise BaseException('stop')"),
        ("fails: BaseException: stop",),
    ),
    Case(
        "D-config-raises-GeneratorExit",
        in_file("raise GeneratorExit"),
        ("fails: GeneratorExit",),
    ),
    Case(
        "D-config-recursion", in_file("def f(): f()\nf()"), ("fails: RecursionError",)
    ),
    Case("config-syntax", in_file("config = ("), ("fails: SyntaxError",)),
    Case(
        "config-escapes",
        in_file("raise ValueError('\\x1b[2J\\nsecond line')"),
        ("\\x1b[2J second line",),
    ),
    Case(
        "config-unknown-field",
        in_file("config = PretrainConfig(num_stps=3)"),
        ("num_stps",),
    ),
    Case(
        "config-unbound",
        in_file("conf = PretrainConfig()"),
        ("bind the name config to a PretrainConfig",),
    ),
    Case(
        "config-of-fine-tuning",
        in_file("config = FinetuneConfig()"),
        ("bind the name config to a PretrainConfig",),
    ),
    Case(
        "config-missing",
        words("pretrain", "WORLD/none.py", "--workdir", "WORLD/run"),
        ("none.py is not a file", "name a configuration file"),
    ),
    Case(
        "config-is-a-directory",
        words("pretrain", "WORLD", "--workdir", "WORLD/run"),
        ("is not a file",),
    ),
    Case(
        "config-of-bytes",
        lambda world: (
            (world.folder / "c.py").write_bytes(b"\xff\xfe\x00")
            and ["pretrain", str(world.folder / "c.py")]
        ),
        ("c.py fails",),
    ),
]
NUMBERS = [
    Case(
        "B2-epsilon",
        pretrain("--optimizer.epsilon", "1e-320"),
        ("epsilon=", "0 in float32"),
    ),
    Case(
        "B2-learning-rate",
        pretrain("--optimizer.peak-learning-rate", "1e-60"),
        ("peak_learning_rate=1e-60", "0 in float32"),
    ),
    Case(
        "B2-learning-rate-infinite",
        pretrain("--optimizer.peak-learning-rate", "1e39"),
        ("infinite in float32", "3.4e+38"),
    ),
    Case(
        "B2-layer-norm-eps",
        pretrain("--model.layer-norm-eps", "1e-50"),
        ("layer_norm_eps=1e-50", "0 in float32"),
    ),
    Case(
        "B2-initializer-range",
        pretrain("--model.initializer-range", "1e300"),
        ("initializer_range=", "infinite in float32"),
    ),
    Case(
        "B2-weight-decay",
        pretrain("--optimizer.weight-decay", "1e-45"),
        ("weight_decay=1e-45", "0 in float32"),
    ),
    Case(
        "B2-beta2",
        pretrain("--optimizer.beta2", "0.99999999999"),
        ("beta2=0.99999999999", "1 in float32"),
    ),
    Case(
        "B2-nan",
        pretrain("--optimizer.weight-decay", "nan"),
        ("weight_decay=nan", "finite"),
    ),
    Case(
        "D-vocab-size",
        with_text("vocab", "--vocab-size", HUGE),
        ("vocab_size=9999", "too large", "2147483647"),
    ),
    Case(
        "D-vocab-size-of-5000-digits",
        with_text("vocab", "--vocab-size", "9" * 5000),
        ("--vocab-size has too many digits",),
    ),
    Case(
        "D-vocab-size-negative",
        with_text("vocab", "--vocab-size", "-" + HUGE),
        ("too large",),
    ),
    Case(
        "D-hidden-size",
        pretrain("--model.hidden-size", str(10**12)),
        ("hidden_size=1000000000000", "too large"),
    ),
    Case(
        "D-hidden-size-of-parameters",
        pretrain("--model.hidden-size", str(2**24)),
        ("hidden_size=16777216", "parameters", "lower"),
    ),
    Case(
        "D-layers-of-parameters",
        pretrain("--model.num-hidden-layers", str(10**9)),
        ("num_hidden_layers=1000000000", "parameters"),
    ),
    Case(
        "D-vocabulary-of-parameters",
        pretrain("--model.vocab-size", str(2**31 - 1), "--model.hidden-size", "768"),
        ("vocab_size=2147483647", "parameters"),
    ),
    Case(
        "E-num-steps", pretrain("--num-steps", str(10**30)), ("num_steps=", "too large")
    ),
    Case(
        "E-batch-size",
        pretrain("--batch-size", str(10**30)),
        ("batch_size=", "too large"),
    ),
    Case("num-epochs", finetune("--num-epochs", "1e39"), ("num_epochs=", "infinite")),
    Case(
        "num-epochs-0",
        finetune("--num-epochs", "0"),
        ("num_epochs=0.0", "greater than 0"),
    ),
    Case(
        "seed-of-400-digits",
        pretrain("--seed", HUGE),
        ("seed=9999", "from 0 to 4294967295"),
    ),
    Case("seed-negative", pretrain("--seed", "-1"), ("seed=-1", "from 0 to")),
    Case(
        "sequence-length-huge",
        with_text("prepare", "--sequence-length", HUGE),
        ("sequence_length=999", "too large"),
    ),
    Case(
        "validation-fraction",
        with_text("prepare", "--validation-fraction", "1.5"),
        ("validation_fraction=1.5", "less than 1"),
    ),
    Case(
        "workers-negative",
        with_text("prepare", "--workers", "-2"),
        ("workers=-2", "at least 0"),
    ),
    Case(
        "short-sequences",
        with_text("prepare", "--short-sequence-probability", "nan"),
        ("short_sequence_probability=nan", "finite"),
    ),
    Case(
        "dropout",
        pretrain("--model.hidden-dropout-prob", "1"),
        ("hidden_dropout_prob=1.0", "less than 1"),
    ),
    Case(
        "keep-checkpoints",
        pretrain("--keep-checkpoints", "0"),
        ("keep_checkpoints=0", "greater than 0"),
    ),
    Case(
        "layer-decay",
        finetune("--optimizer.layer-decay", "0"),
        ("layer_decay=0.0", "above 0"),
    ),
]
OPTIONS = [
    *(
        Case(
            f"option-missing-{verb.replace(' ', '-')}",
            words(*verb.split()),
            (f"{verb} needs", *needs, "--help"),
        )
        for verb, needs in {
            "vocab": ("--input", "--output"),
            "prepare": ("--input", "--output", "--tokenizer"),
            "evaluate": ("--checkpoint",),
            "predict": ("--checkpoint",),
            "features": ("--model", "--input", "--output"),
            "convert import": ("SRC", "--from", "--output"),
            "convert export": ("MODEL", "--to", "--output"),
            "convert extend": ("MODEL", "--output"),
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
        "verb-misspelt",
        words("pretrian"),
        ("'pretrian' is not a verb", "did you mean pretrain?"),
    ),
    Case("verb-of-convert", words("convert", "improt"), ("improt", "import")),
    Case("verb-with-escapes", words("pre\x1b[31mtrain"), ("is not a verb",)),
    Case("benchmark-of-nothing", words("benchmark"), ("what", "--help")),
    Case(
        "benchmark-model",
        words("benchmark", "train", "--model", "huge"),
        ("huge", "base"),
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
        "fused-attention-with-dropout",
        pretrain("--model.fused-attention"),
        ("attention_probs_dropout_prob=0.1", "fused_attention"),
    ),
    Case(
        "sequence-past-the-positions",
        pretrain("--model.max-position-embeddings", "16"),
        ("data.sequence_length=32", "model.max_position_embeddings=16"),
    ),
    Case(
        "head-without-pretraining",
        pretrain("--model.head", "encoder"),
        ("model.head=encoder",),
    ),
    Case(
        "masking-shares",
        pretrain("--masking.mask-share", "0.95"),
        ("mask_share=0.95", "at most 1"),
    ),
    Case("seeds-0", finetune("--seeds", "0"), ("--seeds=0", "at least 1")),
    Case(
        "labels-twice", finetune("--data.labels", "a", "a"), ("labels names", "twice")
    ),
    Case(
        "path-beside-files",
        finetune("--data.path", "x"),
        ("path=x is given beside files",),
    ),
    Case(
        "three-text-columns",
        finetune("--data.text-columns", "a", "b", "c"),
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
    ),
    Case(
        "D-JAX_PLATFORMS-cuda-predict",
        lambda world: [
            *("predict", "--checkpoint", str(world.classifier)),
            *("--input", str(world.table)),
        ],
        ("JAX_PLATFORMS", "cuda"),
        environment={"JAX_PLATFORMS": "cuda"},
        process=True,
    ),
    Case(
        "E-ascii-locale",
        words("inspect", "WORLD/größe"),
        ("is not a directory",),
        environment={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        process=True,
    ),
]
CASES = CONFIG_FILES + NUMBERS + OPTIONS + FILES + DEVICES
