"""Compute plain, recursive and recurrent convolutions, Sec. 3.1 of arXiv:1603.03101.

For an input x of C_in channels, with 3 x 3 kernels, stride 1, padding by zeros and
sigma = relu::

    plain               h = sigma(w x + b)
    recursive_tied      h(0) = sigma(w [x, 0] + b),  h(t) = sigma(w h(t-1) + b)
    recursive_untied    h(0) = sigma(v x + b'),      h(t) = sigma(w h(t-1) + b)
    recurrent           h(0) = sigma(v x + b),       h(t) = sigma(w h(t-1) + v x + b)

for t = 1 .. n; the result is h(n). All iterations share the kernel w: each iteration
adds depth and 2 pixels of receptive field, but no kernel. Zeros are appended to x where
a tied layer has more channels than its input; the paper has only equal numbers.
``share_feedforward = false`` gives a recurrent layer a separate v for each t.

With batch normalisation N_t, which the paper lacks, sigma(.) is sigma(N_t(.)). Every t
has its own statistics, scale and offset, because the sums of different iterations have
different distributions. The offset replaces the bias.
"""

import functools

import keras
from keras import ops

from show_attend_tell.runtime.backend import normalise_batch, normalise_by

SIDE = 3  # of a kernel
MOMENTUM = 0.9  # of the stored statistics, which are measured again before use


class RecursiveConvolution(keras.layers.Layer):
    """A layer of one of the kinds above.

    Args:
        kind: ``plain``, ``recursive_tied``, ``recursive_untied`` or ``recurrent``.
        inputs: C_in, at most C for a tied layer.
        outputs: C.
        iterations: n; a plain layer has none.
        batch_norm: whether sums are normalised.
        share_feedforward: whether all iterations of a recurrent layer have one v.
        seed: seed of the initial kernels.
    """

    def __init__(
        self,
        kind,
        inputs,
        outputs,
        iterations=0,
        batch_norm=True,
        share_feedforward=True,
        seed=0,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # x keeps its type
        self.kind = kind
        self.inputs = inputs
        self.outputs = outputs
        self.iterations = 0 if kind == "plain" else iterations
        self.batch_norm = batch_norm
        self.share_feedforward = share_feedforward
        self.seed = seed
        self._create_kernels()
        self._create_offsets()
        self.built = True

    def _create_kernels(self):
        tied = self.kind == "recursive_tied"
        n = self.iterations
        self.kernel = None  # w
        # A plain layer has v alone, a tied layer w alone.
        if tied or n:
            self.kernel = self._kernel("kernel", self.outputs, 0)
        feeds = n + 1 if self.kind == "recurrent" and not self.share_feedforward else 1
        feeds = 0 if tied else feeds
        self.feedforward = [  # v
            self._kernel(f"feedforward_{t}", self.inputs, t + 1) for t in range(feeds)
        ]

    def _kernel(self, name, inputs, number):
        initializer = keras.initializers.HeNormal(seed=self.seed + number)
        shape = (SIDE, SIDE, inputs, self.outputs)
        return self.add_weight(shape=shape, initializer=initializer, name=name)

    def _create_offsets(self):
        vector = functools.partial(self.add_weight, shape=(self.outputs,))
        if self.batch_norm:
            self.scales = []
            self.offsets = []
            self.means = []
            self.variances = []
            for t in range(self.iterations + 1):
                self.scales.append(vector(initializer="ones", name=f"scale_{t}"))
                self.offsets.append(vector(initializer="zeros", name=f"offset_{t}"))
                moving = functools.partial(vector, trainable=False)
                self.means.append(moving(initializer="zeros", name=f"mean_{t}"))
                self.variances.append(moving(initializer="ones", name=f"variance_{t}"))
            return
        first = vector(initializer="zeros", name="bias_0")
        # All iterations share b; an untied layer has b' at t = 0.
        later = first
        if self.kind == "recursive_untied" and self.iterations:
            later = vector(initializer="zeros", name="bias")
        self.biases = [first] + [later] * self.iterations

    @property
    def statistics(self):
        """The stored mean and variance of each iteration."""
        if not self.batch_norm:
            return []
        return list(zip(self.means, self.variances, strict=True))

    def call(self, x, training=False, momentum=MOMENTUM):
        """Return h(n), (B, H, W, C_in) -> (B, H, W, C), in the type of x.

        Args:
            x: float32 or bfloat16; products are of its type.
            training: whether to use the batch's statistics, which then also update the
                stored statistics.
            momentum: share of the stored statistics that remains; 0 stores the batch's.
        """
        return self.states(x, training, momentum)[-1]

    def states(self, x, training=False, momentum=MOMENTUM):
        """Return h(0) .. h(n); :meth:`call` explains the arguments."""
        if self.kind == "recursive_tied":
            # Zeros appended to the channels of x select the first rows of w.
            fed = convolve(x, self.kernel[:, :, : self.inputs])
        else:
            fed = convolve(x, self.feedforward[0])
        states = [self._activate(fed, 0, training, momentum)]
        for t in range(1, self.iterations + 1):
            total = convolve(states[-1], self.kernel)
            if self.kind == "recurrent":
                if not self.share_feedforward:
                    fed = convolve(x, self.feedforward[t])
                # v x of t = 0 is added again, unless v depends on t.
                total = total + fed
            states.append(self._activate(total, t, training, momentum))
        return states

    def _activate(self, total, t, training, momentum):
        """Return sigma of the sums of iteration t."""
        if not self.batch_norm:
            return ops.relu(total + ops.cast(self.biases[t], total.dtype))
        scale = self.scales[t]
        offset = self.offsets[t]
        mean = self.means[t]
        variance = self.variances[t]
        if not training:
            return ops.relu(normalise_by(total, scale, offset, mean, variance))
        y, *measured = normalise_batch(
            total, ops.convert_to_tensor(scale), ops.convert_to_tensor(offset)
        )
        for moving, value in zip((mean, variance), measured, strict=True):
            moving.assign(momentum * moving + (1 - momentum) * value)
        return ops.relu(y)


def convolve(x, kernel):
    """Return the convolution of x (B, H, W, C_in) with zeros around it, in its type."""
    return ops.conv(x, ops.cast(kernel, x.dtype), padding="same")
