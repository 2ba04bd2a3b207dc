"""Bad inputs: the schedules of the learning rate and of the masking rate."""

from collections.abc import Callable

from bad_case import Case, World
from option_commands import finetune, in_file, pretrain

GIVEN = ("--masking.max-predictions", "20")
CONSTANT = ("--optimizer.schedule", "constant")
ONE_LAYER = """
    --model.num-hidden-layers 1 --model.hidden-size 16 --model.num-attention-heads 1
    --model.intermediate-size 64 --batch-size 8 --mesh.data 1
""".split()

LEARNING_RATE = [
    Case(
        "schedule-unknown",
        pretrain("--optimizer.schedule", "constnat"),
        ("--optimizer.schedule=constnat", "did you mean 'constant'?"),
    ),
    Case(
        "decay-share-of-the-linear-schedule",
        pretrain("--optimizer.decay-share", "0.3"),
        ("decay_share=0.3 has no effect with schedule=linear", "set schedule to const"),
    ),
    Case(
        "decay-share-above-1",
        pretrain(*CONSTANT, "--optimizer.decay-share", "1.5"),
        ("decay_share=1.5 must be from 0 to 1",),
    ),
    Case(
        "decay-share-negative",
        pretrain(*CONSTANT, "--optimizer.decay-share=-0.1"),
        ("decay_share=-0.1 must be from 0 to 1",),
    ),
    Case(
        "decay-steps-without-a-decay",
        pretrain(
            *CONSTANT,
            *("--optimizer.decay-share", "0", "--optimizer.decay-steps", "20"),
        ),
        ("decay_steps=20 has no effect with decay_share=0.0", "leave one of them out"),
    ),
    Case(
        "decay-before-the-end-of-the-warm-up",
        pretrain(*CONSTANT, "--optimizer.decay-share", "0.9"),
        ("optimizer.warmup_steps=2 is more than the 1 steps before", "lower either"),
    ),
    Case(
        "decay-and-warm-up-of-all-steps",
        finetune(*CONSTANT, "--optimizer.decay-share", "0.95"),
        ("warmup_share=0.1 and decay_share=0.95 must add up to at most 1",),
    ),
]
MUON = ("--optimizer.algorithm", "muon")
ALGORITHM = [
    Case(
        "momentum-of-adamw",
        pretrain("--optimizer.momentum", "0.9"),
        ("momentum=0.9 has no effect with algorithm=adamw", "set algorithm to muon"),
    ),
    Case(
        "momentum-of-lamb",
        pretrain("--optimizer.momentum", "0.9", "--optimizer.algorithm", "lamb"),
        ("momentum=0.9 has no effect with algorithm=lamb", "set algorithm to muon"),
    ),
    *(
        Case(
            f"momentum-of-{momentum}",
            pretrain(*MUON, f"--optimizer.momentum={momentum}"),
            (f"momentum={momentum} must be at least 0 and less than 1",),
        )
        for momentum in ("1.0", "-0.1")
    ),
    Case(
        "layer-decay-of-muon",
        finetune(*MUON, "--optimizer.layer-decay", "0.9"),
        ("layer_decay=0.9", "algorithm=muon", "leave it out"),
    ),
]


def for_hours(hours: str, *options: str) -> Callable[[World], list[str]]:
    """A run on the good dataset without a number of steps."""

    def arguments(world: World) -> list[str]:
        words = pretrain(f"--hours={hours}", *options)(world)
        at = words.index("--num-steps")
        return words[:at] + words[at + 2 :]

    return arguments


HOURS = [
    Case(
        "hours-and-steps",
        pretrain("--hours", "2", "--num-steps=10"),
        ("--hours and --num-steps both set the length; give one",),
    ),
    *(
        Case(
            f"hours-of-{hours}",
            for_hours(hours),
            (f"hours={hours} must be finite and greater than 0",),
        )
        for hours in ("0.0", "-1.5", "nan", "inf")
    ),
    *(
        Case(
            f"hours-of-{hours}",
            for_hours(hours, *ONE_LAYER),
            (f"hours={hours} is too long for a step", "at most 2,147,483,647 steps"),
        )
        for hours in ("1e+09", "1e+308")
    ),
    Case(
        "hours-of-a-word",
        for_hours("two"),
        ("--hours=two",),
    ),
    Case(
        "hours-to-print",
        for_hours("2", "--print-config"),
        ("--hours is measured when a run begins; drop --print-config",),
    ),
    Case(
        "hours-to-extend",
        for_hours("2", "--extend"),
        ("--hours is of a run's start; --extend needs --num-steps",),
    ),
    Case(
        "hours-of-a-dry-run",
        for_hours("2", "--dry-run"),
        ("--hours sets a run's length; --dry-run says how long",),
    ),
]
MASKING_RATE = [
    Case(
        "final-rate-of-a-word",
        pretrain("--masking.final-rate", "low"),
        ("--masking.final-rate=low must be a number",),
    ),
    Case(
        "final-rate-of-everything",
        pretrain("--masking.final-rate", "1"),
        ("final_rate=1.0 must be between 0 and 1",),
    ),
    Case(
        "final-rate-of-a-flag",
        in_file("config = PretrainConfig(masking=MaskingConfig(final_rate=True))"),
        ("final_rate=True must be a number",),
    ),
    Case(
        "final-rate-of-too-few-predictions",
        pretrain(*GIVEN, "--masking.rate", "0.7", "--masking.final-rate", "0.3"),
        (
            "masking.max_predictions=20 is less than the 22 tokens to predict of 32 at "
            "masking.rate=0.7",
            "raise it to 22",
        ),
    ),
    Case(
        "rising-rate-of-too-few-predictions",
        pretrain(*GIVEN, "--masking.final-rate", "0.7"),
        ("max_predictions=20 is less than the 22", "masking.final_rate=0.7"),
    ),
]

CASES = [*LEARNING_RATE, *ALGORITHM, *HOURS, *MASKING_RATE]
