"""Classify pictures by differentiable glimpses: Sec. 4.1 of arXiv:1502.04623.

At each of T steps the model sees what a window of N x N filters reads::

    h_t = LSTM(h_{t-1}, gamma F_Y x F_X^T), the window's parameters being W h_{t-1}
    p(y | x) = softmax(W h_T)

with h_0 learned. The loss is the cross entropy alone: the window, unlike the places of
:mod:`siblings.ram`, has a gradient.
"""

import keras
import numpy as np
from keras import ops

from show_attend_tell.config.siblings import DrawReaderSettings
from show_attend_tell.runtime.backend import scan
from show_attend_tell.siblings.classifier import DigitClassifier
from show_attend_tell.siblings.draw.filter_bank import (
    PARAMETERS,
    make_window,
    read_patch,
)
from show_attend_tell.siblings.draw.layers import Affine, Lstm


@keras.saving.register_keras_serializable("show_attend_tell")
class WindowClassifier(DigitClassifier):
    """A classifier that reads with DRAW's window."""

    settings_class = DrawReaderSettings

    def __init__(self, settings, canvas, classes=10, seed=0, **kwargs):
        super().__init__(settings, canvas, classes, seed, **kwargs)
        s = self.settings
        seeds = [int(k) for k in np.random.SeedSequence(seed).generate_state(2) // 2]
        self.core = Lstm(s.read**2, s.width, seeds[0], name="core")
        self.act = Affine(s.width, classes, seeds[1], name="act")
        # Zero at the start: a window on the whole picture.
        self.to_read = Affine(s.width, PARAMETERS, name="to_read")
        self.built = True

    def call(self, images, training=False):
        """Classify pictures.

        Args:
            images: (B, H, H) in [0, 1].
            training: ignored.

        Returns:
            ``logits`` (B, classes), and ``read``, the windows' parameters, (B, T, 5).
        """
        s, rows = self.settings, ops.shape(images)[0]

        def step(state, _):
            parameters = self.to_read(state[0])
            window = make_window(parameters, s.read, self.canvas, self.canvas, s)
            patch = read_patch(images, window, s.read)  # (B, N, N)
            state = self.core(ops.reshape(patch, (-1, s.read**2)), state)
            return state, {"read": parameters}

        nothing = ops.zeros((rows, s.steps, 0))
        state, values = scan(step, self.core.start(rows), nothing, s.steps)
        return {"logits": self.act(state[0]), **values}
