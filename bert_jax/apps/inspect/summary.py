"""A table of a model's parameters by module, their memory, and FLOPs."""

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax

from bert_jax.checkpoints.steps import read_config
from bert_jax.config import BertConfig, OptimizerConfig
from bert_jax.config.checks import require
from bert_jax.config.model import Params
from bert_jax.config.serialization import from_dict
from bert_jax.model.flops import encoding_flops, prediction_flops
from bert_jax.pretrained import Model, as_directory, load_pretrained
from bert_jax.storage.manifest import MANIFEST, read_manifest
from bert_jax.training.optimizer import Optimizer, depths

if TYPE_CHECKING:
    from rich.table import Table

_DEFAULT_LENGTH = 128
_ORDER = (
    "encoder embeddings token position segment layer attention query key value output "
    "feed_forward in out layer_norm pooler masked_lm dense next_sentence classifier "
    "embedding kernel scale bias"
).split()
"""Names in the order in which a forward pass uses them."""


@dataclasses.dataclass(frozen=True)
class Module:
    """The arrays of one module, or of the same module in several layers."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    origin: str
    """imported: read from files that name no run; trained; or frozen: part of a run
    that did not update it."""
    num_parameters: int


@dataclasses.dataclass(frozen=True)
class Group:
    """A layer, the embeddings or a head; or several layers that are alike."""

    names: tuple[str, ...]
    modules: tuple[Module, ...]

    @property
    def name(self) -> str:
        """The names of the layers, with their number."""
        first, last = self.names[0], self.names[-1].rpartition("/")[2]
        count = len(self.names)
        return first if count == 1 else f"{first} … {last} ×{count}"

    @property
    def num_parameters(self) -> int:
        """The parameters of all of the layers."""
        return len(self.names) * sum(module.num_parameters for module in self.modules)


def summary(path: str, sequence_length: int = 0) -> "tuple[str, Table, list[str]]":
    """Return a title, the table and lines that describe the model of `path`.

    FLOPs are those of a row of `sequence_length` tokens; 0: the length of the rows of
    its pretraining, or 128. Raise FileNotFoundError if there is no model, ValueError if
    it is damaged, `path` is a dataset, or the model takes no row of that length.
    """
    directory = as_directory(path)
    require(
        not (directory / MANIFEST).exists() or "shards" not in read_manifest(directory),
        f"{path} is a dataset; --summary describes a model. Leave it out.",
    )
    model = load_pretrained(path)
    config, longest = model.config, model.config.max_position_embeddings
    length = sequence_length or model.trained_length or min(_DEFAULT_LENGTH, longest)
    require(
        1 <= length <= longest,
        f"sequence_length={length} must be from 1 to the model's "
        f"max_position_embeddings={longest}.",
    )
    title = f"model {model.directory}, head {config.head}"
    lines = [*memory_lines(model.params), flops_line(config, model.params, length)]
    return title, groups_table(groups_of(model)), lines


def groups_of(model: Model) -> list[Group]:
    """Return the modules of a model by layer, with layers that are alike folded."""
    origins = jax.tree.leaves(origins_of(model))
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    arrays = []
    for (keys, leaf), origin in zip(leaves, origins, strict=True):
        path = [key.key for key in keys]
        depth = 2 if path[0] == "encoder" else 1
        module = "/".join(path[depth:-1] or path[depth:])
        arrays.append((path, "/".join(path[:depth]), module, leaf, origin))
    arrays.sort(key=lambda array: [_place(name) for name in array[0]])
    groups: list[Group] = []
    for name, members in itertools.groupby(arrays, operator.itemgetter(1)):
        modules = []
        for module, own in itertools.groupby(members, operator.itemgetter(2)):
            _, _, _, values, (origin, *_) = zip(*own, strict=True)
            shapes = tuple(leaf.shape for leaf in values)
            dtypes = ", ".join(sorted({str(leaf.dtype) for leaf in values}))
            size = sum(leaf.size for leaf in values)
            modules.append(Module(module, shapes, dtypes, origin, size))
        names: tuple[str, ...] = (name,)
        if groups and "/layer_" in name and groups[-1].modules == tuple(modules):
            names = (*groups.pop().names, name)
        groups.append(Group(names, tuple(modules)))
    return groups


def _place(name: str) -> tuple[int, int, str]:
    """Return a key that sorts names as a forward pass uses them."""
    stem, _, number = name.rpartition("_")
    if stem == "layer" and number.isdecimal():
        return _ORDER.index(stem), int(number), ""
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER)), 0, name


def origins_of(model: Model) -> Params:
    """Return, for each parameter, whether it was imported, trained or frozen."""
    if model.imported:
        return jax.tree.map(lambda _: "imported", model.params)
    values = read_config(model.directory).get("optimizer")
    frozen = from_dict(OptimizerConfig, values).frozen_layers

    def origin(depth: int) -> str:
        return "frozen" if frozen and depth <= frozen else "trained"

    origins: Params = jax.tree.map(origin, depths(model.params))
    return origins


def groups_table(groups: Sequence[Group]) -> "Table":
    """Return the table: a line for each group, and one for each of its modules."""
    from rich import box
    from rich.table import Table

    total = sum(group.num_parameters for group in groups)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("module", "shapes", "dtype", "origin"):
        table.add_column(heading, no_wrap=heading != "shapes")
    for heading in ("parameters", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in groups:
        is_single = len(group.modules) == 1
        if not is_single:
            origins = ", ".join(sorted({module.origin for module in group.modules}))
            numbers = _numbers(group.num_parameters, total)
            table.add_row(group.name, "", "", origins, *numbers, style="bold")
        for module in group.modules:
            name = f"{group.name}/{module.name}" if is_single else f"  {module.name}"
            shapes = ", ".join(str(list(shape)) for shape in module.shapes)
            origin = module.origin if is_single else ""
            numbers = _numbers(len(group.names) * module.num_parameters, total)
            table.add_row(name, shapes, module.dtype, origin, *numbers)
    table.add_section()
    table.add_row("all", "", "", "", f"{total:,}", "100.0 %", style="bold")
    return table


def _numbers(number: int, total: int) -> tuple[str, str]:
    """Return a number of parameters and its share of all as text."""
    return f"{number:,}", f"{number / total:.1%}".replace("%", " %")


def memory_lines(params: Params) -> list[str]:
    """Return the memory of the parameters, and of a training state with AdamW."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    optimizer = Optimizer(OptimizerConfig(), num_steps=1)
    states = jax.tree.leaves(jax.eval_shape(optimizer.init, params))
    state_size = sum(leaf.size * leaf.dtype.itemsize for leaf in states)
    return [
        f"memory of the parameters: {_size(size)}",
        f"training state: {_size(size + state_size)} with AdamW's two moments, and "
        f"{_size(size)} for gradients; activations: `pretrain --dry-run`",
    ]


def flops_line(config: BertConfig, params: Params, length: int) -> str:
    """Return the model FLOPs of a forward pass of one row."""
    encoding = encoding_flops(config, 1, length)
    line = f"forward pass of a row of {length} tokens: {_flops(encoding)}"
    if "masked_lm" in params:
        line += f", and {_flops(prediction_flops(config))} for each token to predict"
    return line


def _size(size: int) -> str:
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:,.2f} {name}"


def _flops(flops: float) -> str:
    units = {"TFLOPs": 1e12, "GFLOPs": 1e9, "MFLOPs": 1e6, "kFLOPs": 1e3}
    name = next((name for name in units if flops >= units[name]), "kFLOPs")
    return f"{flops / units[name]:,.3g} {name}"
