"""An option that a message advises is one of the verb that prints the message."""

import ast
from pathlib import Path

from advice import unknown_advice

import bert_jax

PACKAGE = Path(bert_jax.__file__).parent
PRINTED_BY = {
    "apps/benchmark": "benchmark train",
    "cli/conversion": "convert export",
    "cli/forking": "fork",
    "cli/inference": "predict",
    "cli/inspection": "inspect",
    "cli/pretraining": "pretrain",
    "cli/filling": "fill",
    "cli/finetuning": "finetune",
    "cli/reproduction": "reproduce",
    "cli/search": "search",
    "cli/start": "pretrain, finetune",
    "config/checks": "prepare, predict, embed",
    "config/distillation": "pretrain, finetune",
    "config/finetuning": "finetune",
    "runs/average": "convert average",
    "apps/convert/extend": "convert extend",
    "apps/convert/shrink": "convert shrink",
    "apps/convert": "convert export",
    "data/prepare": "prepare",
    "data/structured": "vocab, prepare",
    "data/sources": "vocab, prepare",
    "data/vocabulary": "vocab",
    "data/lost_characters": "vocab",
    "data": "prepare",
    "apps/inspect": "inspect",
    "apps/run_page": "inspect",
    "inference/output_directory": "predict, embed",
    "distributed": "pretrain, finetune",
    "apps/dry_run": "pretrain",
    "apps/experiments": "reproduce",
    "formats/huggingface": "convert import, pretrain, finetune",
    "apps/corpus/corpus": "predict, embed",
    "inference/evaluation": "evaluate",
    "inference/retrieval": "search",
    "inference/row_predictions": "predict",
    "apps/corpus/shard_outputs": "embed",
    "runs/finetuning": "finetune",
    "runs/fork": "fork",
    "runs/pretraining": "pretrain",
    "runs/sentence_pairs": "finetune",
    "runs/sweeps": "finetune",
    "runs": "pretrain, finetune",
    "storage/files": "predict, features, search",
    "tables/damage": "finetune, evaluate",
    "tables/lines": "vocab, prepare, evaluate, predict, embed, features",
    "tables/read": "finetune, evaluate, predict, embed",
    "tasks/splits": "finetune",
    "tasks": "finetune, evaluate",
    "training": "pretrain, finetune",
}
"""The verbs that print the messages of a file, by the start of its path; others name
the verb of each option."""
ALLOWED = {
    "cli/forking": "--workdir",  # of the verb that goes on
    "apps/demo/report": "--logdir",  # of tensorboard
    "cli/pretraining": "--model",  # the start of others
    "apps/run_page/run_record": "--patience",  # of the run
    "runs/kernel_schedule": "--xla_jf_dump_to --xla_jf_dump_llo_text",  # of XLA
    "runs/fork": "--data.train",  # of a fork of fine-tuning
    "runs/workdir": "--keep-optimizer",  # of pretraining
    "storage/encodings": "--json",  # of WikiExtractor
}
"""Options that a file names for another reason."""
NO_MESSAGES = (
    *("command", "completion", "examples", "foreign", "help", "hints"),
    *("main", "names", "readers", "verbs"),
)
"""Files of `cli` that hold the names of many verbs."""


def texts(tree):
    """The strings of a module that are not docstrings; {} where a value stands."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.JoinedStr):
            skipped |= {id(child) for child in ast.walk(node)} - {id(node)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            skipped -= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(part, "value", "{}") for part in node.values)
            yield "".join(p if isinstance(p, str) else "{}" for p in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


FILES = [p.relative_to(PACKAGE).with_suffix("") for p in PACKAGE.rglob("*.py")]
FILES = [f for f in FILES if f.parent.name != "cli" or f.name not in NO_MESSAGES]


def test_an_option_that_is_advised_exists():
    wrong = []
    for file in sorted(map(str, FILES)):
        starts = [start for start in PRINTED_BY if file.startswith(start)]
        verbs = PRINTED_BY[max(starts, key=len)].split(", ") if starts else []
        code = ast.parse((PACKAGE / f"{file}.py").read_text())
        advised = [
            (text, o) for text in texts(code) for o in unknown_advice(text, verbs)
        ]
        wrong += [
            (file, *one) for one in advised if one[1] not in ALLOWED.get(file, "")
        ]
    assert not wrong
