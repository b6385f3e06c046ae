"""Generate pictures by adding to a canvas: DRAW of arXiv:1502.04623, Sec. 2 and 3.

At each of T steps the model reads a picture x, samples z and writes::

    x^_t = x - sigmoid(c_{t-1})                              (3)
    r_t = read(x, x^_t, h^dec_{t-1})                         (4)
    h^enc_t = LSTM_enc(h^enc_{t-1}, [r_t, h^dec_{t-1}])      (5)
    mu_t = W h^enc_t, log sigma_t = W h^enc_t                (1), (2)
    z_t = mu_t + sigma_t eps_t, eps_t ~ N(0, I)              (6)
    h^dec_t = LSTM_dec(h^dec_{t-1}, z_t)                     (7)
    c_t = c_{t-1} + write(h^dec_t)                           (8)

where every W is a separate map with a bias, and c_0, h^enc_0 and h^dec_0 are learned.
Without attention read(x, x^, h) = [x, x^] and write(h) = W h, Eq. (17) and (18). With
attention both use the windows of :mod:`draw.filter_bank`, whose parameters are
W h, with one map to read and another to write. The loss of a picture, in nats, bounds
-log p(x)::

    L^x = sum over pixels of softplus(c_T) - x c_T           (9)
    L^z = sum_t 1/2 sum_j (mu^2 + sigma^2 - log sigma^2 - 1) (10), (11)
    L = L^x + L^z                                            (12)

L^z has its constant once for each dimension j of z_t. To generate, z_t ~ N(0, I), and
only the decoder runs, Eq. (13)-(16).

Sizes: B batch, T steps, H and W height and width of a picture, P = H W pixels, N
filters on each axis, Z width of z.
"""

import keras
import numpy as np
from keras import ops

from show_attend_tell.runtime.backend import scan
from show_attend_tell.siblings.common.layers import Affine, Lstm, SiblingModel
from show_attend_tell.siblings.digits.classifier import DigitClassifier
from show_attend_tell.siblings.digits.draw.filter_bank import (
    PARAMETERS,
    make_window,
    read_patch,
    write_patch,
)
from show_attend_tell.siblings.digits.settings import DrawReaderSettings, DrawSettings


@keras.saving.register_keras_serializable("show_attend_tell")
class Draw(SiblingModel):
    """A model that generates pictures step by step.

    Args:
        settings: see :class:`SiblingModel`, as for ``seed``.
        height: H.
        width: W.
    """

    settings_class = DrawSettings
    sizes = ("height", "width")

    def __init__(self, settings, height, width, seed=0, **kwargs):
        super().__init__(settings, seed, **kwargs)
        self.height = height
        self.width = width
        self.generator = keras.random.SeedGenerator(seed)
        s = self.settings
        pixels = height * width
        # 31 bits, because an Lstm also uses the four seeds after its own.
        seeds = [int(k) for k in np.random.SeedSequence(seed).generate_state(6) // 2]
        kernels = [keras.initializers.GlorotUniform(k) for k in seeds]
        # N x N values each of x and x^, Eq. (27). Without attention x^ alone, because
        # `see_image` multiplies x.
        seen = 2 * s.read**2 if s.attention else pixels
        written = s.write**2 if s.attention else pixels
        self.encoder = Lstm(seen + s.width, s.width, seeds[0], name="encoder")
        self.mean = Affine(s.width, s.latent, "mean", kernels[1])
        self.log_deviation = Affine(s.width, s.latent, "log_deviation", kernels[2])
        self.decoder = Lstm(s.latent, s.width, seeds[3], name="decoder")
        self.to_patch = Affine(s.width, written, "to_patch", kernels[4])
        if s.attention:
            # Kernels of zeros: at first a window is on the whole picture.
            self.to_read = Affine(s.width, PARAMETERS, "to_read")
            # The fourth parameter is log delta~, Eq. (21).
            self.to_read.bias.assign([0, 0, 0, np.log(s.read_start), 0])
            self.to_write = Affine(s.width, PARAMETERS, "to_write")
        else:
            # The rows of the encoder's kernel that belong to x in [x, x^], Eq. (17).
            self.see_image = self.add_weight(
                shape=(pixels, 4 * s.width),
                initializer=kernels[5],
                name="see_image",
            )
        self.canvas_0 = self.add_weight(
            shape=(pixels,),
            initializer=keras.initializers.Constant(s.canvas_start),
            name="canvas_0",
        )
        self.built = True

    def sample_noise(self, rows):
        """Return new noise eps for a batch of B rows, (B, T, Z)."""
        shape = (rows, self.settings.steps, self.settings.latent)
        return keras.random.normal(shape, seed=self.generator)

    def call(self, images, training=False):
        """Draw pictures with new noise; see :meth:`draw`."""
        return self.draw(images, self.sample_noise(ops.shape(images)[0]))

    def draw(self, images, noise) -> dict:
        """Encode and draw pictures, and compute both terms of the loss.

        Args:
            images: x, (B, H, W), binary or intensities in [0, 1].
            noise: eps, (B, T, Z).

        Returns:
            ``l_x`` (B,); ``l_z`` (B, T); ``log_ratio`` (B, T), log q(z_t | x) - log
            p(z_t) of the sampled z_t, whose expectation is ``l_z``; ``canvas``
            (B, T + 1, P), the logits c_0 to c_T; and with attention ``read`` and
            ``write``, the windows' parameters, (B, T, 5).
        """
        rows = ops.shape(images)[0]
        s = self.settings
        flat = ops.reshape(images, (-1, self.height * self.width))  # (B, P)
        # Without attention every step reads x: compute its product once.
        gates = 0.0 if s.attention else ops.matmul(flat, self.see_image)

        def step(carry, eps):
            canvas, encoder, decoder = carry
            seen, read = self._read(images, canvas, decoder[0])  # (3), (4)
            both = ops.concatenate([seen, decoder[0]], axis=1)
            encoder = self.encoder(both, encoder, more_gates=gates)  # (5)
            mean = self.mean(encoder[0])  # (1)
            log_deviation = self.log_deviation(encoder[0])  # (2)
            z = mean + ops.exp(log_deviation) * eps  # (6), (B, Z)
            canvas, decoder, write = self._advance(canvas, decoder, z)  # (7), (8)
            values = {
                "canvas": canvas,
                "l_z": divergence(mean, log_deviation),
                # (z - mu) / sigma is eps, and the constants of both densities cancel.
                "log_ratio": ops.sum(
                    (ops.square(z) - ops.square(eps)) / 2 - log_deviation, axis=-1
                ),
            }
            return (canvas, encoder, decoder), {**values, **read, **write}

        start = self._start(rows)
        carry = (start[0], self.encoder.start(rows), start[1])
        (canvas, _, _), values = scan(step, carry, noise, s.steps)
        # c_0 to c_T, (B, T, P) -> (B, T + 1, P)
        values["canvas"] = ops.concatenate([start[0][:, None], values["canvas"]], 1)
        # log(1 + e^c) - x c; not log(p + epsilon), whose gradient vanishes
        pixels = ops.softplus(canvas) - flat * canvas
        return {"l_x": ops.sum(pixels, axis=-1), **values}

    def generate(self, noise) -> dict:
        """Draw pictures from the prior, without the encoder.

        Args:
            noise: z_1 to z_T of N(0, I), (B, T, Z).

        Returns:
            ``canvas`` and with attention ``write``, see :meth:`draw`.
        """

        def step(carry, z):
            canvas, decoder, write = self._advance(*carry, z)
            return (canvas, decoder), {"canvas": canvas, **write}

        start = self._start(ops.shape(noise)[0])
        _, values = scan(step, start, noise, self.settings.steps)
        values["canvas"] = ops.concatenate([start[0][:, None], values["canvas"]], 1)
        return values

    def _start(self, rows):
        """Return c_0 (B, P), and the decoder's h and cell."""
        pixels = self.height * self.width
        canvas = ops.broadcast_to(self.canvas_0, (rows, pixels))
        return canvas, self.decoder.start(rows)

    def _read(self, images, canvas, h):
        """Return r_t (B, 2 N N) and the window's parameters; without it x^ (B, P)."""
        shape = (-1, self.height, self.width)
        error = images - ops.reshape(ops.sigmoid(canvas), shape)  # x^, (B, H, W)
        if not self.settings.attention:
            return ops.reshape(error, (-1, self.height * self.width)), {}
        # Eq. (21), from h^dec_{t-1}. The window that writes is computed from h^dec_t.
        parameters = self.to_read(h)
        N = self.settings.read
        window = self._window(parameters, N)
        patches = [
            ops.reshape(read_patch(each, window, N), (-1, N * N))
            for each in (images, error)
        ]
        return ops.concatenate(patches, axis=1), {"read": parameters}

    def _advance(self, canvas, decoder, z):
        """Return c_t, the decoder's next state, and the window's parameters if any."""
        decoder = self.decoder(z, decoder)
        patch = self.to_patch(decoder[0])
        parameters = {}
        if self.settings.attention:
            parameters["write"] = self.to_write(decoder[0])
            N = self.settings.write
            window = self._window(parameters["write"], N)
            patch = ops.reshape(patch, (-1, N, N))
            patch = write_patch(patch, window, self.height, self.width)  # (B, H, W)
            patch = ops.reshape(patch, (-1, self.height * self.width))
        return canvas + patch, decoder, parameters

    def _window(self, parameters, N):
        return make_window(parameters, N, self.height, self.width, self.settings)

    def losses_of(self, outputs) -> dict:
        """Return the mean loss of a batch in nats, and its parts, as scalars.

        Args:
            outputs: of :meth:`call`.

        Returns:
            ``loss``, ``reconstruction`` (L^x), ``divergence`` (L^z), and the divergence
            of each step, ``divergence_1`` and so on.
        """
        steps = ops.mean(outputs["l_z"], axis=0)  # (B, T) -> (T,)
        parts = {
            "reconstruction": ops.mean(outputs["l_x"]),
            "divergence": ops.sum(steps),
        }
        each = {f"divergence_{t + 1}": steps[t] for t in range(self.settings.steps)}
        return {"loss": sum(parts.values()), **parts, **each}


@keras.saving.register_keras_serializable("show_attend_tell")
class WindowClassifier(DigitClassifier):
    """A classifier that reads with DRAW's window: Sec. 4.1 of arXiv:1502.04623.

    At each of T steps the model sees what a window of N x N filters reads::

        h_t = LSTM(h_{t-1}, gamma F_Y x F_X^T), the window's parameters being W h_{t-1}
        p(y | x) = softmax(W h_T)

    with h_0 learned. The loss is the cross entropy alone: the window, unlike the places
    of :mod:`digits.ram`, has a gradient.
    """

    settings_class = DrawReaderSettings

    def __init__(self, settings, canvas, classes=10, seed=0, names=(), **kwargs):
        super().__init__(settings, canvas, classes, seed, names, **kwargs)
        s = self.settings
        self.glimpses = s.steps
        # 31 bits, as in `Draw`.
        seeds = [int(k) for k in np.random.SeedSequence(seed).generate_state(2) // 2]
        self.core = Lstm(s.read**2, s.width, seeds[0], name="core")
        kernel = keras.initializers.GlorotUniform(seeds[1])
        self.act = Affine(s.width, classes, "act", kernel)
        # A kernel of zeros: at first the window is on the whole picture.
        self.to_read = Affine(s.width, PARAMETERS, "to_read")
        self.built = True

    def call(self, images, training=False):
        """Classify pictures (B, H, H) in [0, 1].

        Returns:
            ``logits`` (B, classes), and ``read``, the windows' parameters, (B, T, 5).
        """
        s = self.settings
        rows = ops.shape(images)[0]

        def step(state, _):
            parameters = self.to_read(state[0])
            window = make_window(parameters, s.read, self.canvas, self.canvas, s)
            patch = read_patch(images, window, s.read)  # (B, N, N)
            state = self.core(ops.reshape(patch, (-1, s.read**2)), state)
            return state, {"read": parameters}

        # `scan` needs an input of each step; this one has no columns.
        nothing = ops.zeros((rows, s.steps, 0))
        state, values = scan(step, self.core.start(rows), nothing, s.steps)
        return {"logits": self.act(state[0]), **values}


def divergence(mean, log_deviation):
    """Return KL(N(mu, sigma^2) || N(0, I)) in nats, Eq. (11); (B, Z) -> (B,)."""
    log_variance = 2 * log_deviation
    terms = ops.square(mean) + ops.exp(log_variance) - log_variance - 1
    return ops.sum(terms, axis=-1) / 2
