"""Record what NumPy code computes as an ONNX graph.

The code of :mod:`show_attend_tell.reference` runs once, on example values. A
:class:`Recorded` array adds one node to the graph for each operation and computes the
operation's value too, so that the code sees real shapes. Axes whose length differs
between calls keep it through a reshape only if they stay in front.
"""

import functools
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import helper, numpy_helper

from show_attend_tell.runtime.errors import ModelFileError
from show_attend_tell.runtime.quantisation import dequantise, quantise

# ONNX 1.14; onnxruntime 1.15 and later read it
OPSET = 18
IR_VERSION = 9
_UFUNCS = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "matmul": "MatMul",
    "maximum": "Max",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
}


class Graph:
    """A graph that is being recorded.

    Args:
        varying: lengths of the example's axes that differ between calls, and their
            names; no other axis may have such a length.
    """

    def __init__(self, varying: dict[int, str] | None = None):
        self.varying = varying or {}
        self._nodes = []
        self._weights = []
        self._inputs = []
        self._outputs = []

    def input(self, name: str, example: np.ndarray) -> "Recorded":
        """Return an input of the graph."""
        self._inputs.append(self._described(name, example))
        return Recorded(self, name, example)

    def output(self, name: str, values) -> None:
        """Name an output of the graph."""
        values = self.constant(values)
        # A node of its own, as an output may be an input, a constant or another output
        # too.
        self._nodes.append(helper.make_node("Identity", [values.name], [name]))
        self._outputs.append(self._described(name, values.value))

    def _described(self, name: str, example: np.ndarray) -> onnx.ValueInfoProto:
        # By length alone: this is why no other axis may have a length of `varying`.
        shape = [self.varying.get(size, size) for size in example.shape]
        kind = helper.np_dtype_to_tensor_dtype(example.dtype)
        return helper.make_tensor_value_info(name, kind, shape)

    def add(self, operator: str, inputs: Sequence, value, **attributes) -> "Recorded":
        """Add a node with one output, whose example is `value`."""
        return self.split(operator, inputs, [value], **attributes)[0]

    def split(self, operator: str, inputs: Sequence, values, **attributes) -> list:
        """Add a node with an output for each of `values`."""
        number = len(self._nodes)
        names = [f"{operator}_{number}_{k}" for k in range(len(values))]
        inputs = [self.constant(x).name for x in inputs]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        outputs = zip(names, values, strict=True)
        return [Recorded(self, name, value) for name, value in outputs]

    def constant(self, values) -> "Recorded":
        """Return values as an array of the graph; float64 becomes float32."""
        if isinstance(values, Recorded):
            return values
        values = _single(values)
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return Recorded(self, name, values)

    def weight(self, name: str, values: np.ndarray, output: int = -1) -> "Recorded":
        """Return a weight, float32 in the graph, stored as small as it is exact.

        A matrix whose every output channel is a scale times 8-bit integers is stored as
        these; weights that are float16 numbers are stored as float16.

        Args:
            name: the name.
            values: float32.
            output: 0 or -1, the axis of the output channels.
        """
        values = np.ascontiguousarray(values)
        half = values.astype(np.float16)
        if values.ndim > 1:
            # `quantise` has a scale for each index of the last axis.
            last = np.moveaxis(values, output, -1)
            q, scale = quantise(last)
            # Only weights that were stored in 8 bits come back from rounding as they
            # were.
            if np.allclose(dequantise(q, scale), last, rtol=1e-6, atol=0):
                q = np.ascontiguousarray(np.moveaxis(q, -1, output))
                q = self._store(name, q)
                scale = self._store(f"{name}_scale", scale)
                if output == 0:
                    return self.add("DequantizeLinear", [q, scale], values, axis=0)
                # In a matrix product with the output of DequantizeLinear, ONNX Runtime
                # rounds the other matrix to 8 bits too.
                return q.astype(np.float32) * scale
        if np.array_equal(half, values):
            return self._store(name, half).astype(np.float32)
        return self._store(name, values)

    def _store(self, name: str, values: np.ndarray) -> "Recorded":
        self._weights.append(numpy_helper.from_array(values, name))
        return Recorded(self, name, values)

    def model(self) -> onnx.ModelProto:
        """Return the model of the graph, without what its outputs do not depend on."""
        read = {value.name for value in self._outputs}
        nodes = []
        # From the outputs back to the inputs: a node is kept if a later one reads it.
        for node in reversed(self._nodes):
            if not read.isdisjoint(node.output):
                read.update(node.input)
                nodes.insert(0, node)
        # Numbers take the array's type: ONNX does not promote types as NumPy does.
        inputs = [value for value in self._inputs if value.name in read]
        weights = [weight for weight in self._weights if weight.name in read]
        graph = helper.make_graph(
            nodes, "show_attend_tell", inputs, self._outputs, weights
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model


class Recorded(NDArrayOperatorsMixin):
    """An array of a graph, with the functions of NumPy that the reference calls.

    Attributes:
        graph: its graph.
        name: its name in the graph.
        value: an example; its length on a varying axis is one of ``graph.varying``.
    """

    def __init__(self, graph: Graph, name: str, value):
        self.graph = graph
        self.name = name
        self.value = _single(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the example."""
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        """The type of the values."""
        return self.value.dtype

    @property
    def T(self) -> "Recorded":
        """The transposed array."""
        return self.transpose(range(self.value.ndim)[::-1])

    def __len__(self) -> int:
        return len(self.value)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        """Record an operation; ``out`` only saves memory in NumPy."""
        # (A,), (B,) -> (A, 1), (B,): ONNX broadcasts as NumPy does.
        if method == "outer":
            return ufunc(inputs[0][:, None], inputs[1])
        if kwargs or ufunc.__name__ not in _UFUNCS:
            return NotImplemented
        inputs = [
            x if isinstance(x, Recorded) else np.asarray(x, self.dtype) for x in inputs
        ]
        value = ufunc(*(getattr(x, "value", x) for x in inputs))
        return self.graph.add(_UFUNCS[ufunc.__name__], inputs, value)

    def __array_function__(self, function, types, args, kwargs):
        """Call the method of this class that has the function's name."""
        method = getattr(Recorded, f"_{function.__name__}", None)
        return NotImplemented if method is None else method(*args, **kwargs)

    def __getitem__(self, index) -> "Recorded":
        """Index by an array of the graph, or by integers, slices and new axes."""
        if isinstance(index, Recorded):
            value = self.value[index.value]
            return self.graph.add("Gather", [self, index], value)
        # Axis by axis: an integer drops the axis, a slice keeps it. New axes are added
        # afterwards.
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            k = index.index(Ellipsis)
            rest = self.value.ndim - sum(x is not None for x in index) + 1
            index = (*index[:k], *[slice(None)] * rest, *index[k + 1 :])
        result = self
        axis = 0
        new = []
        for place, part in enumerate(index):
            if part is None:
                # Its place in the result, in which integers before it have no axis.
                new.append(place - sum(isinstance(x, int) for x in index[:place]))
            elif isinstance(part, int):
                value = result.value.take(part, axis)
                inputs = [result, np.int64(part)]
                result = self.graph.add("Gather", inputs, value, axis=axis)
            else:
                result = result._cut(part, axis)
                axis += 1
        return result._unsqueeze(new) if new else result

    def _cut(self, part: slice, axis: int) -> "Recorded":
        if part == slice(None):
            return self
        start, stop, step = part.indices(self.shape[axis])
        value = self.value.take(range(start, stop, step), axis)
        bounds = [np.array([x]) for x in (start, stop, axis, step)]
        return self.graph.add("Slice", [self, *bounds], value)

    def _unsqueeze(self, axes) -> "Recorded":
        value = np.expand_dims(self.value, tuple(axes))
        return self.graph.add("Unsqueeze", [self, np.array(axes)], value)

    def transpose(self, axes: Sequence[int]) -> "Recorded":
        """Return the axes in another order."""
        value = self.value.transpose(axes)
        return self.graph.add("Transpose", [self], value, perm=list(axes))

    def reshape(self, *shape) -> "Recorded":
        """Return another shape; leading axes of the same length are kept."""
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        value = self.value.reshape(shape)
        sizes = [*shape]
        for k, pair in enumerate(zip(shape, self.shape, strict=False)):
            if pair[0] != pair[1]:
                break
            sizes[k] = 0  # as in the input
        # The example's length would be fixed in the graph.
        if lost := self.graph.varying.keys() & set(sizes):
            raise ModelFileError(f"a reshape must keep {lost}. Received: {shape}")
        return self.graph.add("Reshape", [self, np.array(sizes)], value)

    def astype(self, dtype) -> "Recorded":
        """Return the values as another type."""
        value = _single(self.value.astype(dtype))
        to = helper.np_dtype_to_tensor_dtype(value.dtype)
        return self.graph.add("Cast", [self], value, to=to)

    def argmax(self, axis: int) -> "Recorded":
        """Return the index of the largest value, of equal ones the first."""
        value = self.value.argmax(axis)
        return self.graph.add("ArgMax", [self], value, axis=axis, keepdims=0)

    def _reduced(self, kind: str, axis: int, keepdims: bool = False) -> "Recorded":
        """Return the largest value, the mean or the sum of an axis."""
        value = getattr(self.value, kind.lower())(axis=axis, keepdims=keepdims)
        inputs = [self, np.array([axis])]
        keepdims = int(keepdims)
        return self.graph.add(f"Reduce{kind}", inputs, value, keepdims=keepdims)

    max = functools.partialmethod(_reduced, "Max")
    mean = functools.partialmethod(_reduced, "Mean")
    sum = functools.partialmethod(_reduced, "Sum")

    def _swapaxes(self, first: int, second: int) -> "Recorded":
        axes = np.arange(self.value.ndim)
        axes[[first, second]] = axes[[second, first]]
        return self.transpose(axes.tolist())

    def _pad(self, widths) -> "Recorded":
        pads = np.array(widths).T.ravel()  # of all axes, before and after
        return self.graph.add("Pad", [self, pads], np.pad(self.value, widths))

    def _ones_like(self) -> "Recorded":
        # Of the array and not a constant, which would fix the length of varying axes.
        return self * 0 + 1

    def _split(self, parts: int, axis: int) -> list["Recorded"]:
        values = np.split(self.value, parts, axis)
        arguments = {"axis": axis, "num_outputs": parts}
        return self.graph.split("Split", [self], values, **arguments)

    @staticmethod
    def _concatenate(arrays: Sequence, axis: int = 0) -> "Recorded":
        graph = next(x.graph for x in arrays if isinstance(x, Recorded))
        value = np.concatenate([getattr(x, "value", x) for x in arrays], axis)
        return graph.add("Concat", arrays, value, axis=axis)

    @staticmethod
    def _stack(arrays: Sequence, axis: int = 0) -> "Recorded":
        return Recorded._concatenate([x._unsqueeze([axis]) for x in arrays], axis)


def _single(values) -> np.ndarray:
    """Return an array, float32 in place of float64."""
    values = np.asarray(values)
    return values.astype(np.float32) if values.dtype == np.float64 else values
