"""Define the base and the layers of the models of digits and words."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import keras
import numpy as np
from keras import ops

from show_attend_tell.models.lstm.cell import OrthogonalGates, lstm_update
from show_attend_tell.reference.tensor_file import SUFFIX, write_tensors
from show_attend_tell.runtime.backend import scan

_GATES = {"lstm": 4, "rnn": 1}


class SiblingModel(keras.Model):
    """A model of digits or words; a subclass adds its layers.

    Attributes:
        settings_class: dataclass of the settings.
        sizes: the constructor's arguments beside settings and seed that are numbers.
        texts: name -> type and default of those that are texts.
        may_be_new: names of the layers that an initial model may lack.

    Args:
        settings: an instance of ``settings_class``, or its values.
        seed: seed of the initial weights and of the model's random numbers.
    """

    settings_class: type
    sizes: tuple[str, ...] = ()
    may_be_new: tuple[str, ...] = ()
    texts: ClassVar[dict[str, tuple]] = {}

    def __init__(self, settings, seed=0, **kwargs):
        super().__init__(**kwargs)
        # Keras' `from_config` passes what `get_config` returned, the settings as a
        # dict.
        if isinstance(settings, dict):
            settings = self.settings_class(**settings)
        self.settings = settings
        self.seed = seed

    def get_config(self):
        """Return the arguments of the constructor."""
        return {**super().get_config(), **self.arguments()}

    def arguments(self):
        """Return the arguments of the constructor that a file holds."""
        return {
            "settings": dataclasses.asdict(self.settings),
            **{name: getattr(self, name) for name in (*self.sizes, *self.texts)},
            "seed": self.seed,
        }

    def extend(self, initial):
        """Take the weights of a model of the same class.

        Raises:
            ValueError: a weight has another shape, or a layer is missing.
        """
        given = named_weights(initial)
        wanted = named_weights(self)
        new = [name for name in wanted if name.split("/")[0] in self.may_be_new]
        known = {name: tuple(weight.shape) for name, weight in given.items()}
        shapes = {name: tuple(weight.shape) for name, weight in wanted.items()}
        lacking = {name: shapes[name] for name in new if name not in given}
        # Equal tables: no weight is absent or left over, and all shapes fit. Weights
        # are assigned only after that, so that a refused model stays as it was.
        if known | lacking != shapes:
            raise ValueError("other weights")
        for name, weight in given.items():
            wanted[name].assign(weight)

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """Save the model in a ``.safetensors`` file, or in a form of Keras.

        Args:
            filepath: with the ending ``.safetensors`` a file of this package, which is
                replaced atomically; otherwise see ``keras.Model.save``.
            overwrite: for Keras.
            zipped: for Keras.
            **kwargs: for Keras.
        """
        if Path(filepath).suffix != SUFFIX:
            super().save(filepath, overwrite, zipped, **kwargs)
            return
        about = {"class": type(self).__name__, "config": self.arguments()}
        weights = named_weights(self).items()
        arrays = {name: ops.convert_to_numpy(weight) for name, weight in weights}
        write_tensors(filepath, about, arrays)


def named_weights(model):
    """Return the weights of a model by their names in a file, in the order of Keras.

    The layers of a model have names of their own, which no other process changes.
    """
    # Keras numbers the models of a process: the prefix is `draw`, `draw_1`, and so on.
    return {
        weight.path.removeprefix(f"{model.name}/"): weight for weight in model.weights
    }


def make_dense(inputs, units, name, initializer, activation=None):
    """Return a built dense layer whose kernel starts with an initializer's values."""
    layer = keras.layers.Dense(
        units, activation, kernel_initializer=initializer, name=name
    )
    layer.build((None, inputs))
    return layer


class Affine(keras.layers.Dense):
    """A built dense layer of DRAW.

    The paths of arrays in files of version 0.3 contain the name of this class, so
    ``convert`` depends on it; other models use :func:`make_dense`.
    """

    def __init__(self, inputs, units, name, initializer="zeros"):
        super().__init__(units, kernel_initializer=initializer, name=name)
        self.build((None, inputs))


def _open_forget_gate(bias):
    """Set the bias of an LSTM's forget gate, the second of four, to 1."""
    # The order of the gates is i, f, o, g, see `lstm_update`.
    bias.assign(np.repeat(np.float32([0, 1, 0, 0]), bias.shape[0] // 4))


class Lstm(keras.layers.Layer):
    """An LSTM whose h_0 is learned, and whose cell starts at zero.

    At the start the matrices of h are orthogonal, one for each gate, the matrices of
    the input follow Glorot's rule, and the bias of the forget gate is 1.

    Args:
        inputs: width of the input.
        width: n, width of h.
        seed: seed of the initial weights.
    """

    def __init__(self, inputs, width, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.inputs = inputs
        self.width = width
        self.seed = seed
        # Of [v, h]: one product in place of two.
        self.kernel = self.add_weight(
            shape=(inputs + width, 4 * width), initializer="zeros", name="kernel"
        )
        # The fan-in of Glorot's rule is the inputs alone, and each gate's matrix of h
        # is orthogonal by itself: one initializer for the whole kernel would do
        # neither.
        parts = (
            keras.initializers.GlorotUniform(seed)((inputs, 4 * width)),
            OrthogonalGates(seed + 1)((width, 4 * width)),
        )
        self.kernel.assign(ops.concatenate(parts, axis=0))
        self.bias = self.add_weight(
            shape=(4 * width,), initializer="zeros", name="bias"
        )
        _open_forget_gate(self.bias)
        self.h_0 = self.add_weight(shape=(width,), initializer="zeros", name="h_0")
        # The weights exist from the constructor on, because files are read before any
        # call.
        self.built = True

    def start(self, rows):
        """Return h_0 and the cell of a batch of B rows, (B, n) each."""
        h = ops.broadcast_to(self.h_0, (rows, self.width))
        return h, ops.zeros((rows, self.width))

    def call(self, vector, state, more_gates=0.0):
        """Advance by one step; return the next h and cell.

        Args:
            vector: (B, inputs).
            state: h and the cell, (B, n) each.
            more_gates: what inputs that stay the same add to the gates, (B, 4n).
        """
        h, cell = state
        both = ops.concatenate([vector, h], axis=1)  # (B, inputs + n)
        gates = ops.matmul(both, self.kernel) + self.bias + more_gates
        return lstm_update(gates, cell)


class Cell(keras.layers.Layer):
    """A recurrent layer whose state starts at zero, and which takes projected inputs.

    ``rnn``: s_t = tanh(W x_t + U s_{t-1} + b). ``lstm``: :func:`lstm_update` of the
    same sum for its four gates, with the bias 1 of the forget gate at the start.

    See :class:`Lstm` for the other arguments.
    """

    def __init__(self, kind, inputs, width, seed=0, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.inputs = inputs
        self.width = width
        self.seed = seed
        self.gates = _GATES[kind] * width
        orthogonal = keras.initializers.Orthogonal(seed=seed)
        self.kernel = self.add_weight(
            shape=(inputs, self.gates),
            # OrthogonalGates uses the four seeds from `seed` on.
            initializer=keras.initializers.GlorotUniform(seed=seed + 10),
            name="kernel",
        )
        self.recurrent = self.add_weight(
            shape=(width, self.gates),
            initializer=OrthogonalGates(seed) if kind == "lstm" else orthogonal,
            name="recurrent",
        )
        self.bias = self.add_weight(
            shape=(self.gates,), initializer="zeros", name="bias"
        )
        if kind == "lstm":
            _open_forget_gate(self.bias)
        self.built = True

    def project(self, x):
        """Return W x + b, (..., inputs) -> (..., gates)."""
        return ops.matmul(x, self.kernel) + self.bias

    def start(self, rows):
        """Return the state before the first step, a tuple of (B, n)."""
        zeros = ops.zeros((rows, self.width))
        return (zeros, zeros) if self.kind == "lstm" else (zeros,)

    def step(self, projected, state):
        """Advance by one step; the first of the returned state is s_t.

        Args:
            projected: W x_t + b and what is added to it, (..., gates).
            state: a tuple of (..., n).
        """
        total = projected + ops.matmul(state[0], self.recurrent)
        if self.kind == "lstm":
            return lstm_update(total, state[1])
        return (ops.tanh(total),)

    def unroll(self, projected):
        """Return s_1 .. s_T of projected inputs, (B, T, gates) -> (B, T, n)."""

        # Only U s_{t-1} is left in the loop: W x_t + b is one product for all steps.
        def advance(state, x):
            state = self.step(x, state)
            return state, {"s": state[0]}

        start = self.start(ops.shape(projected)[0])
        return scan(advance, start, projected, projected.shape[1])[1]["s"]
