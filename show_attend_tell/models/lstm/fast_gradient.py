"""Accelerate training: the LSTM decoder's steps with a gradient written by hand.

This module adds no equation. It differentiates Eq. (4)-(6) and the gate of
:mod:`models.lstm.attention`, and the gated cell of :mod:`models.lstm.cell`, as
:meth:`models.lstm.decoder.LstmDecoder.step` joins them;
``tests/models/lstm/test_fast_gradient.py`` compares it with autodiff of that method,
and ``tests/models/lstm/test_four_attentions.py`` with the three other forms of Eq. (4),
:func:`models.lstm.attention.attention_scores`,
:func:`models.lstm.attention.tanh_scores` and :func:`reference.lstm.attention_scores`.
``model.fast_gradient = false`` trains without this module.

Autodiff keeps the (B, L, A) hidden layer of f_att for each of the T words, makes a
cotangent as large for each and adds T gradients of every matrix. This module computes
the hidden layer again and sums over words once, after the loop.

Forward, for t = 1 .. T, with P = W_a a and [s, u, v] = h_{t-1} [W_h, U, w_beta]::

    r = 1 / (1 + exp(2P) exp(2s))       tanh(P + s) = 1 - 2r
    alpha = softmax(-2 r w)             = softmax(tanh(P + s) w), w.1 cancels
    z = sum_i l_i a_i        l = alpha, or the weights that hard attention selects
    beta = sigma(v + b)      z_hat = beta z
    [i, f, o, g] = (sigma, sigma, sigma, tanh)(x + u + z_hat V)
    c_t = f c_{t-1} + i g    h_t = o tanh(c_t)

Backward, from t = T to 1; d. is the cotangent of . The cotangents of h_t, z_hat, alpha,
l and beta start from the caller's loss (readout, Eq. (14), REINFORCE), dh and dc also
from t + 1::

    do = dh tanh(c_t)        dc = dc + dh o (1 - tanh(c_t)^2)
    di = dc g    df = dc c_{t-1}    dg = dc i
    dx = du = [di i(1-i), df f(1-f), do o(1-o), dg (1-g^2)]
    dz_hat = dz_hat + du V^T    dz = beta dz_hat
    dv = (dbeta + dz_hat . z) beta (1 - beta)
    dalpha_i = dalpha_i + q (dl_i + a_i . dz)       q = 1, or 0 where l was sampled
    de = alpha (dalpha - alpha . dalpha)            softmax; sum_i de_i = 0
    ds = w sum_i de_i 4 (r_i - r_i^2)               1 - tanh^2 = 4 (r - r^2)
    dh_{t-1} = [ds, du, dv] [W_h, U, w_beta]^T    dc_{t-1} = dc f

After the loop, sums over t and the batch, each one matrix product or one pass over P::

    d[W_h, U, w_beta] = sum h_{t-1}^T [ds, du, dv]    dV = sum z_hat^T du    db = sum dv
    dP = w sum_t de 4 (r - r^2)    da = sum_t l dz
    dw = sum de tanh(P + s) = 2 sum de (1 - r),  1 - r = 1 / (1 + exp(-2P) exp(-2s))

With `precision` bfloat16 each word reads half of the bytes: a and exp(2P) are stored in
it. The products with a, [W_h, U, w_beta] and V have factors and results in it; sums and
elementwise equations are float32, and so is what a step saves.

A step of each pass is compiled once, for captions of all lengths; only dP and dw are
compiled for each length.

exp overflows in float32 from 88; P and s are clipped to +-43, far beyond where tanh is
+-1, and an infinite product gives the right r = 0. Notation:
:mod:`show_attend_tell.models.lstm.attention`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from show_attend_tell.models.decoder_interface import SOFT, Selection
from show_attend_tell.models.lstm.attention import (
    attention_weights,
    context,
    exp_twice,
    tanh_scores,
)


class Weights(NamedTuple):
    """The tensors that every step reads, or their gradients."""

    annotations: Any  # a, (B, L, D)
    projected: Any  # P, (B, L, A)
    kernel: Any  # [W_h, U, w_beta], (n, A + 4n + 1); no w_beta: beta = 1
    w_att: Any  # w, (A,)
    lstm_z: Any  # V, (D, 4n)
    b_beta: Any  # b, (1,)


class Constants(NamedTuple):
    """The weights, and what is computed from them once for all steps."""

    weights: Weights
    exp_projected: Any  # exp(2P), (B, L, A)
    kernel_t: Any = None  # the kernel's transpose, of the backward steps


# What a step returns is stacked over the steps; every field then leads with T.


class Saved(NamedTuple):
    """The values that a forward step saves for the backward step."""

    h: Any  # h_{t-1}, (B, n)
    c: Any  # c_{t-1}, (B, n)
    state: Any  # s, (B, A)
    alpha: Any  # (B, L)
    context_weights: Any  # l, (B, L)
    gradient_share: Any  # q, (B, 1)
    z: Any  # (B, D)
    beta: Any  # (B, 1)
    gates: Any  # i, f, o, g and tanh(c_t) side by side, (B, 5n)


class Cotangents(NamedTuple):
    """The cotangents of the outputs of :func:`unroll`, of one step."""

    h: Any  # (B, n)
    z_hat: Any  # (B, D)
    alpha: Any  # (B, L)
    context_weights: Any  # dl, (B, L)
    beta: Any  # (B,)


class StepGradients(NamedTuple):
    """The cotangents that a backward step leaves for the sums after the loop."""

    products: Any  # [ds, du, dv], (B, A + 4n + 1)
    z: Any  # (B, D)
    e: Any  # (B, L)


def unroll(
    word_gates,
    h,
    c,
    weights: Weights,
    compile_fn: Callable | None = None,
    selection: Selection = SOFT,
    precision: str = "float32",
):
    """Run :meth:`LstmDecoder.step` over the words of captions (teacher forcing).

    Args:
        word_gates: x, the words' part of the gates, (B, T, 4n); T known.
        h: h_0, (B, n).
        c: c_0, (B, n).
        weights: tensors, not variables.
        compile_fn: compiles a function, and returns the same result for the same
            function; None if the caller compiles the whole training step.
        selection: the choice of the context weights.
        precision: dtype of the products, and of a and exp(2P) as they are stored for
            the loop: float32 or bfloat16.

    Returns:
        h (B, T, n), z_hat (B, T, D), alpha and l (B, T, L) and beta (B, T), float32.
    """

    @ops.custom_gradient  # takes and returns no nested tuples
    def run(word_gates, h, c, *weights):
        weights = Weights(*weights)
        exp_projected = _compiled(exp_twice, compile_fn)(weights.projected)
        # Cast once, before the loop: every step then reads half of the bytes in
        # bfloat16. `projected` itself is not read again.
        weights = weights._replace(
            annotations=ops.cast(weights.annotations, precision),
            kernel=ops.cast(weights.kernel, precision),
            lstm_z=ops.cast(weights.lstm_z, precision),
        )
        constants = Constants(weights, ops.cast(exp_projected, precision))
        outputs, saved = _forward(word_gates, h, c, constants, selection, compile_fn)

        def gradient(*upstream):  # TensorFlow: one argument an output; JAX: one tuple
            upstream = upstream[0] if len(upstream) == 1 else upstream
            cotangents = Cotangents(*map(_swap_batch_and_time, upstream))
            dword_gates, dh, dc, dweights = _backward(
                saved, cotangents, constants, compile_fn
            )
            return dword_gates, dh, dc, *dweights

        return outputs, gradient

    return run(word_gates, h, c, *weights)


def _product(x, w):
    """Multiply (..., p) by (p, q) in the dtype of w; return (..., q) as float32."""
    return ops.cast(ops.matmul(ops.cast(x, w.dtype), w), "float32")


def _compiled(function, compile_fn):
    if compile_fn is None:
        return function
    return compile_fn(function)


def _forward(word_gates, h, c, constants: Constants, selection, compile_fn):
    """Return the outputs of :func:`unroll`, and :class:`Saved` of all steps."""
    # (B, T, ...) -> (T, B, ...)
    inputs = tuple(map(_swap_batch_and_time, selection.inputs))
    rows = (_swap_batch_and_time(word_gates), inputs)
    step = _step_function(selection.function)
    (h, _), saved = _scan(step, (h, c), rows, constants, compile_fn)
    # Steps save h_{t-1} alone: the other states follow by a shift.
    h = ops.concatenate([saved.h[1:], h[None]], 0)  # h_0 .. h_{T-1} -> h_1 .. h_T
    z_hat = saved.beta * saved.z  # (T, B, D)
    beta = saved.beta[..., 0]  # (T, B)
    outputs = (h, z_hat, saved.alpha, saved.context_weights, beta)
    return tuple(map(_swap_batch_and_time, outputs)), saved


def _scan(step, carry, rows, constants, compile_fn, reverse=False):
    """Apply a step to each of T rows, and stack what it returns.

    Args:
        step: (carry, row, constants) -> (carry, outputs), nests of tensors.
        carry: the first carry.
        rows: nest of tensors (T, ...); a row has the (...) of one t.
        constants: nest of tensors that every step reads.
        compile_fn: compiles the step, whatever T is; None leaves it to the caller,
            whose compiler gets a loop.
        reverse: whether the last row is the first; outputs keep the order of rows.

    Returns:
        The last carry, and the outputs (T, ...).
    """
    T = keras.tree.flatten(rows)[0].shape[0]

    def row_at(t):
        return keras.tree.map_structure(lambda x: x[t], rows)

    if compile_fn is not None:
        compiled_step = compile_fn(step)
        order = range(T)
        if reverse:
            order = reversed(order)
        outputs = [None] * T
        for t in order:
            carry, outputs[t] = compiled_step(carry, row_at(t), constants)
        # T of (...) -> (T, ...)
        return carry, keras.tree.map_structure(lambda *x: ops.stack(x), *outputs)

    def body(k, loop):
        carry, outputs = loop
        t = T - 1 - k if reverse else k
        carry, row = step(carry, row_at(t), constants)

        def write(output, x):  # x (...) at row t of (T, ...)
            return ops.slice_update(output, (t, *(0 for _ in x.shape)), x[None])

        return carry, keras.tree.map_structure(write, outputs, row)

    # A step that is not used otherwise: it gives the shapes.
    _, shapes = step(carry, row_at(0), constants)
    outputs = keras.tree.map_structure(
        lambda x: ops.zeros((T, *ops.shape(x)), x.dtype), shapes
    )
    # No autodiff passes through this loop. On TensorFlow it would fail under XLA, which
    # needs a `maximum_iterations` that Keras does not give here.
    return ops.fori_loop(0, T, body, (carry, outputs))


def _swap_batch_and_time(value):
    """Transpose (B, T, ...) to (T, B, ...) or back."""
    return ops.swapaxes(value, 0, 1)


@functools.cache  # equal functions are compiled once
def _step_function(select):
    """Return :func:`_step` with the function of a :class:`Selection`."""

    def step(carry, row, constants):
        return _step(select, carry, row, constants)

    return step


def _step(select, carry, row, constants):
    """Compute :meth:`models.lstm.decoder.LstmDecoder.step`.

    Args:
        select: see :class:`Selection`.
        carry: h_{t-1} and c_{t-1}, (B, n).
        row: x_t, (B, 4n), and the tuple of the step's inputs of `select`.
        constants: :class:`Constants`.

    Returns:
        The next carry, and :class:`Saved` of the step.
    """
    h, c = carry
    word_gates, inputs = row
    weights = constants.weights
    A = weights.w_att.shape[0]
    n = c.shape[-1]
    products = _product(h, weights.kernel)  # (B, n) -> (B, A + 4n + 1)
    s = products[:, :A]
    u = products[:, A : A + 4 * n]
    v = products[:, A + 4 * n :]
    e = tanh_scores(constants.exp_projected, s, weights.w_att)  # (B, L)
    alpha = attention_weights(e)
    context_weights, share = select(alpha, *inputs)  # (B, L), (B, 1)
    stored = weights.annotations.dtype
    z = context(weights.annotations, ops.cast(context_weights, stored))  # (B, D)
    z = ops.cast(z, "float32")
    # The kernel has a column of w_beta only if there is a gate.
    if weights.kernel.shape[1] > A + 4 * n:
        beta = ops.sigmoid(v + weights.b_beta)  # (B, 1)
    else:
        beta = ops.ones_like(alpha[:, :1])
    gates = word_gates + u + _product(beta * z, weights.lstm_z)  # (B, 4n)
    # Sliced, where `lstm_update` splits: no autodiff differentiates these slices.
    i = ops.sigmoid(gates[:, :n])  # (B, n)
    f = ops.sigmoid(gates[:, n : 2 * n])
    o = ops.sigmoid(gates[:, 2 * n : 3 * n])
    g = ops.tanh(gates[:, 3 * n :])
    new_c = f * c + i * g
    tanh_c = ops.tanh(new_c)
    gates = ops.concatenate([i, f, o, g, tanh_c], -1)  # (B, 5n)
    saved = Saved(h, c, s, alpha, context_weights, share, z, beta, gates)
    return (o * tanh_c, new_c), saved


def _step_backward(carry, row, constants):
    """Compute the gradient of one :func:`_step`, the equations of the module docstring.

    Args:
        carry: dh and dc from the step after it, (B, n).
        row: :class:`Saved` and :class:`Cotangents` of the step.
        constants: :class:`Constants`, with the kernel's transpose.

    Returns:
        dh_{t-1} and dc_{t-1}; and :class:`StepGradients`.
    """
    dh, dc = carry
    saved, cotangents = row
    weights = constants.weights
    dh = dh + cotangents.h  # (B, n)
    i, f, o, g, tanh_c = ops.split(saved.gates, 5, -1)  # (B, 5n) -> five of (B, n)
    # LSTM
    do = dh * tanh_c
    dc = dc + dh * o * (1 - tanh_c**2)
    di = dc * g
    df = dc * saved.c
    dg = dc * i
    before_sigmoid = [di * i * (1 - i), df * f * (1 - f), do * o * (1 - o)]
    before_tanh = dg * (1 - g**2)
    du = ops.concatenate([*before_sigmoid, before_tanh], -1)  # (B, 4n)
    # gate of the context
    dz_hat = _product(du, ops.transpose(weights.lstm_z))  # (B, 4n) -> (B, D)
    dz_hat = cotangents.z_hat + dz_hat
    dbeta = cotangents.beta[:, None]  # (B,) -> (B, 1)
    dv = dbeta + ops.sum(dz_hat * saved.z, -1, keepdims=True)  # (B, D) -> (B, 1)
    dv = dv * saved.beta * (1 - saved.beta)
    dz = saved.beta * dz_hat
    # attention
    stored = weights.annotations.dtype
    # (B, L, D) @ (B, D, 1) -> (B, L, 1)
    a_dz = ops.matmul(weights.annotations, ops.cast(dz, stored)[:, :, None])
    a_dz = ops.cast(a_dz, "float32")
    dl = cotangents.context_weights + ops.squeeze(a_dz, -1)  # (B, L)
    dalpha = cotangents.alpha + saved.gradient_share * dl
    de = saved.alpha * (dalpha - ops.sum(saved.alpha * dalpha, -1, keepdims=True))
    slopes = _slope_sum(constants.exp_projected, exp_twice(saved.state), de)  # (B, A)
    ds = 4 * weights.w_att * slopes
    products = ops.concatenate([ds, du, dv], -1)  # (B, A + 4n + 1)
    products = products[:, : weights.kernel.shape[1]]  # without dv if beta = 1
    dh = _product(products, constants.kernel_t)  # -> (B, n)
    return (dh, dc * f), StepGradients(products, dz, de)


def _slope_sum(exp_projected, exp_state, de):
    """Return sum_i de_i (r_i - r_i^2), (B, L, A), (B, A), (B, L) -> (B, A).

    The sum runs first over a few parts of the photo, term by term: XLA then computes
    r in registers, where as an operand of a product it would be stored, (B, L, A).
    """
    L, A = exp_projected.shape[1:]
    # The largest number of parts, up to 7, that divides L evenly.
    parts = next(k for k in range(7, 0, -1) if L % k == 0)
    # (B, L, A) -> (B, parts, L / parts, A), and (B, L) -> (B, parts, L / parts, 1)
    exp_projected = ops.reshape(exp_projected, (-1, parts, L // parts, A))
    de = ops.reshape(de, (-1, parts, L // parts, 1))
    total = 0.0
    for k in range(parts):
        r = 1 / (1 + exp_projected[:, k] * exp_state[:, None])  # (B, L / parts, A)
        total = total + de[:, k] * (r - r * r)
    return ops.sum(total, axis=1)  # (B, L / parts, A) -> (B, A)


def _backward(saved: Saved, cotangents: Cotangents, constants: Constants, compile_fn):
    """Return the gradients of word_gates, h_0, c_0 and :class:`Weights`.

    `saved` and `cotangents` are those of all steps, (T, B, ...).
    """
    weights = constants.weights
    A = weights.w_att.shape[0]
    n = saved.c.shape[-1]
    precision = weights.kernel.dtype
    # Transposed once for all steps.
    constants = constants._replace(kernel_t=ops.transpose(weights.kernel))
    carry = (ops.zeros_like(saved.h[0]), ops.zeros_like(saved.c[0]))  # (B, n)
    rows = (saved, cotangents)
    (dh, dc), gradients = _scan(
        _step_backward, carry, rows, constants, compile_fn, reverse=True
    )
    du = gradients.products[..., A : A + 4 * n]  # (T, B, 4n)
    dv = gradients.products[..., A + 4 * n :]  # (T, B, 1), or (T, B, 0) if beta = 1
    attention_gradients = _compiled(_attention_gradients, compile_fn)
    dprojected, dw_att = attention_gradients(
        saved.state, constants.exp_projected, weights.w_att, gradients.e
    )
    # Outside of compiled parts, so that a graph omits da, which is needed only if
    # annotations have a gradient.
    dweights = Weights(
        # (T, B, L), (T, B, D) -> (B, L, D)
        annotations=ops.einsum("tbl,tbd->bld", saved.context_weights, gradients.z),
        projected=dprojected,
        kernel=_sum_of_outer(saved.h, gradients.products, precision),
        w_att=dw_att,
        lstm_z=_sum_of_outer(saved.beta * saved.z, du, precision),
        b_beta=ops.reshape(ops.sum(dv), (1,)),
    )
    return _swap_batch_and_time(du), dh, dc, dweights


def _sum_of_outer(left, right, precision):
    """Return the sum of left^T right, (T, B, p) and (T, B, q) -> (p, q), as float32.

    T and B are two axes of the sum: were they reshaped to one, several devices that
    share a batch would each gather the whole of it.
    """
    left = ops.cast(left, precision)
    right = ops.cast(right, precision)
    return ops.cast(ops.tensordot(left, right, axes=((0, 1), (0, 1))), "float32")


def _attention_gradients(states, exp_projected, w_att, des):
    """Return dP (B, L, A) and dw (A,), each one pass over (B, L, A) for all words.

    r and 1 - r are written as two expressions on purpose: XLA would store a common one
    for every word.

    Args:
        states: s of all steps, (T, B, A).
        exp_projected: exp(2P), (B, L, A).
        w_att: w, (A,).
        des: de of all steps, (T, B, L).
    """
    dprojected = 0.0
    dw = 0.0
    # Of bfloat16 too: the sums over words are float32.
    exp_projected = ops.cast(exp_projected, "float32")
    inverse = 1 / exp_projected  # exp(-2P)
    for t in range(states.shape[0]):
        de = ops.expand_dims(des[t], -1)  # (B, L) -> (B, L, 1)
        s = ops.expand_dims(states[t], 1)  # (B, A) -> (B, 1, A)
        r = 1 / (1 + exp_projected * exp_twice(s))  # (B, L, A)
        # The factor 4 w, equal for all words, follows after the loop.
        dprojected = dprojected + de * (r - r * r)
        dw = dw + de * (1 / (1 + inverse * exp_twice(-s)))  # de (1 - r)
    dw = ops.reshape(dw, (-1, dw.shape[-1]))  # (B, L, A) -> (B L, A)
    # A sum over rows as a product with ones, (1, B L) @ (B L, A) -> (A,)
    dw = ops.matmul(ops.ones_like(dw[None, :, 0]), dw)[0]
    return 4 * w_att * dprojected, 2 * dw
