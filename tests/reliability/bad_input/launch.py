"""Bad inputs: variables of several processes, and of JAX's backends."""

from collections.abc import Callable

from bad_case import Case, World

COORDINATOR = "BERT_JAX_COORDINATOR"
NUMBER = "BERT_JAX_NUM_PROCESSES"
PROCESS = "BERT_JAX_PROCESS_ID"
DETECT = "BERT_JAX_DISTRIBUTED"
GOOD = {COORDINATOR: "127.0.0.1:8476", NUMBER: "2", PROCESS: "1"}


def pretrain(*options: str) -> Callable[[World], list[str]]:
    """A run that would begin, were it not for the variables or the options."""
    return lambda world: [
        "pretrain",
        *("--workdir", str(world.folder / "run")),
        *("--data.path", str(world.dataset)),
        *options,
    ]


def finetune(*options: str) -> Callable[[World], list[str]]:
    """The other verb that several processes may run."""
    return lambda world: [
        *("finetune", "text-classification"),
        *("--workdir", str(world.folder / "run")),
        *("--init-from", str(world.encoder), "--data.train", str(world.table)),
        *options,
    ]


def missing(*names: str) -> dict[str, str]:
    """Good variables but for these."""
    return {name: value for name, value in GOOD.items() if name not in names}


ADDRESSES = {
    "without-port": "10.0.0.1",
    "with-a-word-as-port": "10.0.0.1:http",
    "with-port-0": "10.0.0.1:0",
    "with-too-high-a-port": "10.0.0.1:65536",
    "with-a-negative-port": "10.0.0.1:-1",
    "with-a-port-of-5000-digits": "10.0.0.1:" + "9" * 5000,
    "with-other-digits": "10.0.0.1:\u0661\u0662",
    "without-host": ":8476",
    "with-a-scheme": "http://10.0.0.1:8476",
    "with-a-path": "10.0.0.1/run:8476",
    "with-a-user": "me@10.0.0.1:8476",
    "with-a-space": "10.0.0.1 :8476",
    "without-brackets": "fd00::1:8476",
    "with-empty-brackets": "[]:8476",
}
WHICH = {
    "process-too-high": {PROCESS: "2"},
    "process-negative": {PROCESS: "-1"},
    "process-a-word": {PROCESS: "first"},
    "process-a-fraction": {PROCESS: "1.0"},
    "process-in-other-digits": {PROCESS: "\u0661"},
    "process-of-5000-digits": {PROCESS: "1" * 5000},
    "number-0": {NUMBER: "0", PROCESS: "0"},
    "number-negative": {NUMBER: "-2"},
    "number-a-word": {NUMBER: "two"},
    "number-of-5000-digits": {NUMBER: "9" * 5000},
}
INCOMPLETE = {
    "coordinator": (COORDINATOR,),
    "number": (NUMBER,),
    "process": (PROCESS,),
    "number-and-process": (NUMBER, PROCESS),
    "coordinator-and-number": (COORDINATOR, NUMBER),
}

CASES = [
    *[
        Case(
            f"launch-address-{name}",
            pretrain(),
            (
                f"{COORDINATOR}={value[:20]}",
                "must be HOST:PORT of process 0, as in 10.",
            ),
            environment=GOOD | {COORDINATOR: value},
        )
        for name, value in ADDRESSES.items()
    ],
    *[
        Case(
            f"launch-{name}",
            pretrain(),
            (
                "the first must be a number from 0, less than the second.",
                *(f"{key}={value[:20]}" for key, value in changed.items()),
            ),
            environment=GOOD | changed,
        )
        for name, changed in WHICH.items()
    ],
    *[
        Case(
            f"launch-without-{name}",
            (finetune if name == "number" else pretrain)(),
            (
                f"{' and '.join(missing(*names))} without {' and '.join(names)}: ",
                f"set all three, or {DETECT}=1 where JAX can find them by itself.",
            ),
            environment=missing(*names),
        )
        for name, names in INCOMPLETE.items()
    ],
    *[
        Case(
            f"launch-detect-{value}",
            (finetune if value == "true" else pretrain)(),
            (f"{DETECT}={value} must be 1, for JAX to find", "by itself, or 0."),
            environment={DETECT: value},
        )
        for value in ("yes", "true", "2", "-1")
    ],
    *[
        Case(
            f"E-initialization-timeout-{value[:7]}",
            verb("--initialization-timeout", value),
            (f"--initialization-timeout={value}", "from 1 to 604800 seconds."),
        )
        for verb, value in [
            (pretrain, "0"),
            (finetune, "-5"),
            (pretrain, "604801"),
            (finetune, "9" * 400),
        ]
    ],
    *[
        Case(
            f"launch-deterministic-{flag[-1]}",
            verb("--deterministic"),
            (f"XLA_FLAGS has {flag}, and --deterministic", "drop one of them."),
            environment={"XLA_FLAGS": f"--xla_gpu_deterministic_ops=true {flag}"},
        )
        for verb, flag in [
            (pretrain, "--xla_gpu_deterministic_ops=false"),
            (finetune, "--xla_gpu_deterministic_ops=0"),
        ]
    ],
    Case(
        "launch-detect-where-there-is-no-cluster",
        pretrain(),
        (f"{DETECT}=1 but JAX finds no cluster here", f"set {COORDINATOR}, {NUMBER}"),
        environment={DETECT: "1"},
        process=True,
    ),
]
