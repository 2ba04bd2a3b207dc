"""`bert-jax inspect`, `doctor` and `demo`."""

import dataclasses
from typing import Annotated

import tyro

from bert_jax.terminal.messages import printable


@dataclasses.dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Print what a dataset, a workdir or a model holds."""

    path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PATH")]
    """Its directory, or hf:OWNER/NAME@REVISION."""
    verify: bool = False
    """Compare the sha256 of every file."""


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """Check versions, devices and their arithmetic, disk, common mistakes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Make a vocabulary, a dataset, a pretrained model and predictions, offline."""

    workdir: str = "bert_jax_demo"
    """Directory for everything that the demo makes."""


def inspect(options: InspectOptions) -> None:
    from bert_jax.diagnostics.inspect import inspect

    for line in inspect(options.path, options.verify):
        print(printable(line))


def doctor(_: DoctorOptions) -> int:
    from bert_jax.diagnostics.doctor import main

    return main()


def demo(options: DemoOptions) -> None:
    import jax

    from bert_jax.demo.demo import demo

    jax.devices()  # fails before any file is written, if there is no device
    demo(options.workdir)
