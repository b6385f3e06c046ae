"""The decoder over given words, with a gradient written out by hand.

Autodiff keeps the (B, L, A) hidden layer of f_att for each of the T words, makes a
cotangent as large for each and adds T gradients of every matrix. Here the hidden layer
is computed anew, and whatever sums over words is summed once, after the loop.

Forward, for t = 1 .. T, with P = W_a a and [s, u, v] = h_{t-1} [W_h, U, w_beta]::

    r = 1 / (1 + exp(2P) exp(2s))       tanh(P + s) = 1 - 2r
    alpha = softmax(-2 r w)             = softmax(tanh(P + s) w), w.1 being no matter
    z = sum_i l_i a_i        l = alpha, or where hard attention looks
    beta = sigma(v + b)      z_hat = beta z
    [i, f, o, g] = (sigma, sigma, sigma, tanh)(x + u + z_hat V)
    c_t = f c_{t-1} + i g    h_t = o tanh(c_t)

Backward, from t = T to 1; d. is the cotangent of ., those of h_t, z_hat, alpha, l and
beta start from what the caller's loss sends (readout, Eq. (14), REINFORCE), dh and dc
also from t + 1::

    do = dh tanh(c_t)        dc = dc + dh o (1 - tanh(c_t)^2)
    di = dc g    df = dc c_{t-1}    dg = dc i
    dx = du = [di i(1-i), df f(1-f), do o(1-o), dg (1-g^2)]
    dz_hat = dz_hat + du V^T    dz = beta dz_hat
    dv = (dbeta + dz_hat . z) beta (1 - beta)
    dalpha_i = dalpha_i + q (dl_i + a_i . dz)       q = 1, or 0 where l was drawn
    de = alpha (dalpha - alpha . dalpha)            softmax; sum_i de_i = 0
    ds = w sum_i de_i 4 (r_i - r_i^2)               1 - tanh^2 = 4 (r - r^2)
    dh_{t-1} = [ds, du, dv] [W_h, U, w_beta]^T    dc_{t-1} = dc f

After the loop, sums over t and the batch, each one matrix product or one pass over P::

    d[W_h, U, w_beta] = sum h_{t-1}^T [ds, du, dv]    dV = sum z_hat^T du    db = sum dv
    dP = w sum_t de 4 (r - r^2)    da = sum_t l dz
    dw = sum de tanh(P + s) = 2 sum de (1 - r),  1 - r = 1 / (1 + exp(-2P) exp(-2s))

Both passes are loops whose body is compiled once, not unrolled: the first update of a
length comes in half the time, and the others take 5 to 10 % less.

exp overflows in float32 from 88; P and s are clipped to +-43, far beyond where tanh is
+-1, and an infinite product gives the right r = 0. Notation:
:mod:`show_attend_tell.models.attention`.
"""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from show_attend_tell.models.attention import context

LIMIT = 43.0


class Weights(NamedTuple):
    """The tensors that a step reads, in the order of :func:`unroll`."""

    annotations: object  # a, (B, L, D)
    projected: object  # P, (B, L, A)
    kernel: object  # [W_h, U, w_beta], (n, A + 4n + 1); no w_beta: beta = 1
    w_att: object  # w, (A,)
    lstm_z: object  # V, (D, 4n)
    b_beta: object  # b, (1,)


class Saved(NamedTuple):
    """What the forward pass of one step leaves to the backward pass.

    Of all steps together every field leads with T.
    """

    h: object  # h_{t-1}, (B, n)
    c: object  # c_{t-1}, (B, n)
    shift: object  # s, (B, A)
    alpha: object  # (B, L)
    looked: object  # l, (B, L)
    passes: object  # q, (B, 1)
    z: object  # (B, D)
    beta: object  # (B, 1)
    gates: object  # i, f, o, g and tanh(c_t) side by side, (B, 5n)


def take_alpha(t, alpha):
    """Look as soft attention does: at alpha itself, the whole gradient passing."""
    return alpha, ops.ones_like(alpha[:, :1])


def unroll(
    word_gates,
    h,
    c,
    weights,
    compiled: Callable = lambda function: function,
    look: Callable = take_alpha,
):
    """Run the steps of :meth:`Decoder.step` with tanh attention over given words.

    Args:
        word_gates: x, the words' share of the gates, (B, T, 4n); T known.
        h: h_0, (B, n).
        c: c_0, (B, n).
        weights: the tensors of :class:`Weights`.
        compiled: applied to the forward pass and to the backward pass.
        look: (t, alpha) -> the weights of phi, l (B, L), and which share of their
            gradient goes on to alpha, q (B, 1).

    Returns:
        h (B, T, n), z_hat (B, T, D), alpha and l (B, T, L) and beta (B, T).
    """

    def forward(*tensors):
        return _forward(look, *tensors)

    forward, backward = compiled(forward), compiled(_backward)

    @ops.custom_gradient
    def run(*tensors):
        outputs, steps = forward(*tensors)

        def gradient(*upstream):  # TensorFlow: one argument an output; JAX: one tuple
            upstream = upstream[0] if len(upstream) == 1 else upstream
            du, dh, dc, dz, *rest = backward(steps, tensors[3:], upstream)
            # Here, where it is left out if nobody asks for it.
            da = ops.einsum("tbl,tbd->bld", Saved(*steps).looked, dz)
            return du, dh, dc, da, *rest

        return outputs, gradient

    return run(word_gates, h, c, *weights)


def _forward(look, word_gates, h, c, *weights):
    """Return the outputs of :func:`unroll` and what its steps saved."""
    weights = Weights(*weights)
    growth = _exp2(weights.projected)
    x = _turned(word_gates)

    def step(t, state):
        h, c, steps = state
        saved, h, c = _step(t, x[t], h, c, growth, weights, look)
        return h, c, _put(steps, t, saved)

    empty = _room(x.shape[0], _step(0, x[0], h, c, growth, weights, look)[0])
    h, _, saved = ops.fori_loop(0, x.shape[0], step, (h, c, empty))
    saved = Saved(*saved)
    states = ops.concatenate([saved.h[1:], h[None]], 0)
    outputs = (
        states,
        saved.beta * saved.z,
        saved.alpha,
        saved.looked,
        saved.beta[..., 0],
    )
    return tuple(_turned(value) for value in outputs), tuple(saved)


def _turned(value):
    """Swap (B, T, ...) and (T, B, ...)."""
    return ops.swapaxes(value, 0, 1)


def _room(steps, step):
    """Return zeros for what every step leaves, given what one step leaves."""
    return tuple(ops.zeros((steps, *one.shape), one.dtype) for one in step)


def _put(steps, t, step):
    """Write what step t leaves to its row among those of all steps."""
    return tuple(
        ops.slice_update(rows, (t, *(0 for _ in row.shape)), row[None])
        for rows, row in zip(steps, step, strict=True)
    )


def _exp2(value):
    """Return exp(2 value), value kept where neither it nor its inverse overflows."""
    return ops.exp(2 * ops.clip(value, -LIMIT, LIMIT))


def _step(t, word_gates, h, c, growth, weights, look):
    """Advance by one word; return what to save, h_t and c_t."""
    width, n = weights.w_att.shape[0], c.shape[-1]
    products = ops.matmul(h, weights.kernel)
    shift = products[:, :width]
    r = 1 / (1 + growth * ops.expand_dims(_exp2(shift), 1))  # (B, L, A)
    scores = ops.squeeze(ops.matmul(r, ops.expand_dims(-2 * weights.w_att, 1)), -1)
    alpha = ops.softmax(scores, axis=-1)
    looked, passes = look(t, alpha)
    z = context(weights.annotations, looked)
    if weights.kernel.shape[1] > width + 4 * n:
        beta = ops.sigmoid(products[:, width + 4 * n :] + weights.b_beta)
    else:
        beta = ops.ones_like(alpha[:, :1])
    gates = word_gates + products[:, width : width + 4 * n]
    gates = gates + ops.matmul(beta * z, weights.lstm_z)
    i, f, o = (ops.sigmoid(gates[:, k * n : (k + 1) * n]) for k in range(3))
    g = ops.tanh(gates[:, 3 * n :])
    new_c = f * c + i * g
    tanh_c = ops.tanh(new_c)
    gates = ops.concatenate([i, f, o, g, tanh_c], -1)
    saved = Saved(h, c, shift, alpha, looked, passes, z, beta, gates)
    return saved, o * tanh_c, new_c


def _step_backward(saved, growth, weights, dh, dc, dz_hat, dalpha, dlooked, dbeta):
    """Return [ds, du, dv], dc_{t-1}, dz and de of one step."""
    i, f, o, g, tanh_c = ops.split(saved.gates, 5, -1)
    dc = dc + dh * o * (1 - tanh_c**2)
    di, df, do, dg = dc * g, dc * saved.c, dh * tanh_c, dc * i
    du = (di * i * (1 - i), df * f * (1 - f), do * o * (1 - o), dg * (1 - g**2))
    du = ops.concatenate(du, -1)
    dz_hat = dz_hat + ops.matmul(du, ops.transpose(weights.lstm_z))
    dv = dbeta + ops.sum(dz_hat * saved.z, -1, keepdims=True)
    dv = dv * saved.beta * (1 - saved.beta)
    dz = saved.beta * dz_hat
    dlooked = dlooked + ops.squeeze(ops.matmul(weights.annotations, dz[:, :, None]), -1)
    dalpha = dalpha + saved.passes * dlooked
    de = saved.alpha * (dalpha - ops.sum(saved.alpha * dalpha, -1, keepdims=True))
    ds = 4 * weights.w_att * _slope(growth, _exp2(saved.shift), de)
    products = ops.concatenate([ds, du, dv], -1)[:, : weights.kernel.shape[1]]
    return products, dc * f, dz, de


def _slope(growth, factor, de):
    """Return sum_i de_i (r_i - r_i^2), (B, A).

    The sum runs first over a few parts of the photo, term by term: XLA then computes
    r in registers, where as an operand of a product it would be stored, (B, L, A).
    """
    locations, width = growth.shape[1:]
    parts = next(k for k in range(7, 0, -1) if locations % k == 0)
    growth = ops.reshape(growth, (-1, parts, locations // parts, width))
    de = ops.reshape(de, (-1, parts, locations // parts, 1))
    total = 0.0
    for k in range(parts):
        r = 1 / (1 + growth[:, k] * factor[:, None])
        total = total + de[:, k] * (r - r * r)
    return ops.sum(total, axis=1)


def _backward(steps, weights, upstream):
    """Return the gradients of word_gates, h_0, c_0, z and the weights but for a's."""
    steps, weights = Saved(*steps), Weights(*weights)
    dhs, *upstream, dbetas = (_turned(value) for value in upstream)
    growth = _exp2(weights.projected)
    last = steps.h.shape[0] - 1
    width, n = weights.w_att.shape[0], steps.c.shape[-1]
    back = ops.transpose(weights.kernel)

    def step(k, state):
        dh, dc, rows = state
        row, dh, dc = row_of(last - k, dh, dc)
        return dh, dc, _put(rows, last - k, row)

    def row_of(t, dh, dc):
        """Return what step t adds to sums over words, dh_{t-1} and dc_{t-1}."""
        saved = Saved(*(value[t] for value in steps))
        dout = dh + dhs[t], dc, *(value[t] for value in upstream), dbetas[t][:, None]
        products, dc, dz, de = _step_backward(saved, growth, weights, *dout)
        return (products, dz, de), ops.matmul(products, back), dc

    dh, dc = ops.zeros_like(steps.h[0]), ops.zeros_like(steps.c[0])
    empty = _room(last + 1, row_of(last, dh, dc)[0])
    dh, dc, (dproducts, dz, de) = ops.fori_loop(0, last + 1, step, (dh, dc, empty))
    du = dproducts[..., width : width + 4 * n]
    dkernel = _outer(steps.h, dproducts)
    db = ops.reshape(ops.sum(dproducts[..., width + 4 * n :]), (1,))
    dprojected, dw = _attention_gradients(steps.shift, growth, weights, de)
    dlstm_z = _outer(steps.beta * steps.z, du)
    return _turned(du), dh, dc, dz, dprojected, dkernel, dw, dlstm_z, db


def _outer(left, right):
    """Return the sum of left^T right, (T, B, p) and (T, B, q) -> (p, q)."""
    left = ops.reshape(left, (-1, left.shape[-1]))
    right = ops.reshape(right, (-1, right.shape[-1]))
    return ops.matmul(ops.transpose(left), right)


def _attention_gradients(shifts, growth, weights, des):
    """Return dP and dw, each one pass over (B, L, A) for all words together.

    r and 1 - r are written as two expressions on purpose: with one in common XLA
    would store it for every word.
    """
    dprojected, dw = 0.0, 0.0
    decay = 1 / growth
    for t in range(shifts.shape[0]):
        weight = ops.expand_dims(des[t], -1)  # (B, L) -> (B, L, 1)
        factor = ops.expand_dims(_exp2(shifts[t]), 1)
        r = 1 / (1 + growth * factor)
        dprojected = dprojected + weight * (r - r * r)
        dw = dw + weight * (1 / (1 + decay * _exp2(ops.expand_dims(-shifts[t], 1))))
    dw = ops.reshape(dw, (-1, dw.shape[-1]))
    dw = ops.matmul(ops.ones_like(dw[None, :, 0]), dw)[0]
    return 4 * weights.w_att * dprojected, 2 * dw
