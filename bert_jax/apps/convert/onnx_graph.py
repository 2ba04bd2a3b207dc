"""An ONNX graph while it is built, and the files that it is written to.

The library `onnx` is imported where it is used: only this export needs it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Float32, Int64

from bert_jax.config import BertConfig
from bert_jax.storage.files import atomic_write

MODEL, DATA = "model.onnx", "model.onnx_data"
OPSET, IR_VERSION = 17, 8
"""The oldest that have LayerNormalization, so that the most runtimes read the file."""
MAX_INLINE_BYTES = 2**31 - 2**24
"""A protobuf message has less than 2 GiB; the rest of the graph takes a little."""
_ALIGNMENT = 4096
"""Tensors start at whole pages of the file, so that runtimes can map it."""

Dims = tuple[int | str, ...]
"""The shape of an input or output: sizes, and names of axes of any size."""


class Graph:
    """Nodes in the order in which they are computed, and their parameters.

    A value of the graph is known by its name. Names of nodes are paths like those of
    the parameters, `encoder/layer_0/attention/query/MatMul`.
    """

    def __init__(
        self, config: BertConfig, params: dict[str, Float32[np.ndarray, "..."]]
    ) -> None:
        self.config = config
        self.params = params
        """By their paths."""
        self.used: dict[str, Float32[np.ndarray, ...]] = {}
        """The parameters that nodes have asked for."""
        self.inputs: dict[str, Dims] = {}
        self.outputs: dict[str, Dims] = {}
        self._nodes: list[Any] = []
        self._names: set[str] = set()
        self._output_names: dict[str, str] = {}
        self._constants: dict[str, Any] = {}

    def input(self, name: str, dims: Dims) -> str:
        """Add an input of type int64."""
        self.inputs[name] = dims
        return name

    def output(self, value: str, name: str, dims: Dims) -> None:
        """Make `value` a float32 output of the graph, called `name` there."""
        self.outputs[name] = dims
        self._output_names[value] = name

    def parameter(self, path: str) -> str:
        """Return the name of a parameter, its path; the file will contain it."""
        self.used[path] = self.params[path]
        return path

    def value(self, value: str | int | float | list[int]) -> str:
        """Return the name of a value, or of a constant: float32, or int64 if whole."""
        if isinstance(value, str):
            return value
        if isinstance(value, float):
            return self.constant(f"number/{value}", np.asarray(value, np.float32))
        numbers = np.asarray(value, np.int64)
        kind = "integers" if numbers.ndim else "integer"
        return self.constant(f"{kind}/{'_'.join(map(str, numbers.flat))}", numbers)

    def constant(
        self, name: str, values: Int64[np.ndarray, "..."] | Float32[np.ndarray, "..."]
    ) -> str:
        """Add a constant, and return its name."""
        import onnx

        self._constants[name] = onnx.numpy_helper.from_array(values, name)
        return name

    def op(
        self,
        kind: str,
        *inputs: str | int | float | list[int],
        at: str,
        **attributes: Any,
    ) -> str:
        """Add a node of an operator to the module at a path; return its output.

        A number, or a list of whole ones, is a constant.
        """
        import onnx

        names = [self.value(value) for value in inputs]
        name, number = f"{at}/{kind}", 0
        while name in self._names:
            number += 1
            name = f"{at}/{kind}_{number}"
        self._names.add(name)
        self._nodes.append(
            onnx.helper.make_node(kind, names, [name], name=name, **attributes)
        )
        return name

    def write(
        self, directory: epath.Path, max_inline_bytes: int = MAX_INLINE_BYTES
    ) -> None:
        """Write the model to `model.onnx`, and check that file.

        Parameters of more than `max_inline_bytes` are in `model.onnx_data`. Raise
        OSError if the disk is full.
        """
        import onnx

        size = sum(values.nbytes for values in self.used.values())
        if size <= max_inline_bytes:
            tensors = [
                onnx.numpy_helper.from_array(values, name)
                for name, values in self.used.items()
            ]
        else:
            tensors = _external_tensors(self.used)
            atomic_write(directory / DATA, *_pieces(self.used.values()))
        names = self._output_names
        for node in self._nodes:
            for values in (node.input, node.output):
                values[:] = [names.get(value, value) for value in values]
        model = onnx.helper.make_model(
            onnx.helper.make_graph(
                self._nodes,
                "bert",
                _value_infos("INT64", self.inputs),
                _value_infos("FLOAT", self.outputs),
                [*tensors, *self._constants.values()],
            ),
            producer_name="bert_jax",
            opset_imports=[onnx.helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        atomic_write(directory / MODEL, model.SerializeToString())
        onnx.checker.check_model(str(directory / MODEL), full_check=True)


def _value_infos(kind: str, values: dict[str, Dims]) -> list[Any]:
    """Return descriptions of inputs or outputs that all have one type."""
    import onnx

    dtype, make = getattr(onnx.TensorProto, kind), onnx.helper.make_tensor_value_info
    return [make(name, dtype, dims) for name, dims in values.items()]


def _pieces(arrays: Iterable[Float32[np.ndarray, "..."]]) -> Iterator[memoryview]:
    """Yield the bytes of each array, then its padding."""
    for values in arrays:
        flat = np.ascontiguousarray(values, "<f4").reshape(-1)
        yield flat.view(np.uint8).data
        yield memoryview(bytes(-values.nbytes % _ALIGNMENT))


def _external_tensors(params: dict[str, Float32[np.ndarray, "..."]]) -> list[Any]:
    """Return tensors whose values are in `model.onnx_data`, one after the other."""
    import onnx

    tensors, offset = [], 0
    for name, values in params.items():
        tensor = onnx.TensorProto(
            name=name,
            dims=values.shape,
            data_type=onnx.TensorProto.FLOAT,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        place = {"location": DATA, "offset": offset, "length": values.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        offset += values.nbytes + -values.nbytes % _ALIGNMENT
    return tensors
