"""On JAX a training in bfloat16 has its recurrence in bfloat16 too."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
from tiny_run import experiment

from show_attend_tell.training.optimizer import make_optimizer

jax = pytest.importorskip("jax", reason="needs the packages of '.[jax]'")
core = pytest.importorskip("jax.extend.core")
step_jax = pytest.importorskip("show_attend_tell.training.step_jax")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="`make test-jax` runs it on JAX"
)

LENGTHS = (4, 2, 3, 4)
B = len(LENGTHS)
UPDATES = 10
# Of the arrays that a loop reads at every word; the products read all but P.
A_SHAPE = (B, tiny.L, tiny.D)
P_SHAPE = (B, tiny.L, tiny.A)
KERNEL_SHAPE = (tiny.n, tiny.A + 4 * tiny.n + 1)
V_SHAPE = (tiny.D, 4 * tiny.n)
READ = (A_SHAPE, KERNEL_SHAPE, KERNEL_SHAPE[::-1], V_SHAPE, V_SHAPE[::-1])


def stepping(precision):
    """Return a step of a tiny model, and a function that draws a batch."""
    training = {"batch_size": B, "precision": precision, "learning_rate": 0.01}
    settings = experiment(training=training).training
    model = tiny.build(np.random.default_rng(1), spread=0.3)
    model.compile(optimizer=make_optimizer(settings, 100))
    model.optimizer.build(model.trainable_variables)
    return step_jax.captioner_step(model, settings)


def batch(rng):
    features, tokens, targets = tiny.batch(rng, LENGTHS)
    return {"annotations": features, "tokens": tokens}, targets


def jaxpr_of(precision):
    step = stepping(precision)
    arguments = batch(np.random.default_rng(2))
    return jax.make_jaxpr(step._function)(step._state(), arguments).jaxpr


def equations(jaxpr):
    """Yield all equations of a program and of the functions inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def dtypes(variables, shapes):
    return {str(v.aval.dtype) for v in variables if v.aval.shape in shapes}


def loops(jaxpr):
    """Return the loops over words: forward, and back."""
    found = [e for e in equations(jaxpr) if e.primitive.name == "scan"]
    return [e for e in found if dtypes(e.invars, [A_SHAPE])]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_loops_read_photos_and_matrices_in_the_precision(precision):
    forward, back = loops(jaxpr_of(precision))
    for loop in (forward, back):
        for shape in (A_SHAPE, P_SHAPE, V_SHAPE):
            assert dtypes(loop.invars, [shape]) == {precision}, shape
    assert dtypes(forward.invars, [KERNEL_SHAPE]) == {precision}
    assert dtypes(back.invars, [KERNEL_SHAPE[::-1]]) == {precision}


def test_products_with_them_have_factors_in_bfloat16():
    for loop in loops(jaxpr_of("bfloat16")):
        body = loop.params["jaxpr"].jaxpr
        products = [e for e in equations(body) if e.primitive.name == "dot_general"]
        read = [e for e in products if dtypes(e.invars, READ)]
        assert len(read) == 3  # of a; of the kernel; and of V
        for product in read:
            assert {str(v.aval.dtype) for v in product.invars} == {"bfloat16"}


def test_nothing_is_bfloat16_in_a_training_in_float32():
    for equation in equations(jaxpr_of("float32")):
        for variable in equation.outvars:
            assert str(variable.aval.dtype) != "bfloat16"


def test_losses_differ_by_the_rounding_of_bfloat16():
    losses = {}
    for precision in ("float32", "bfloat16"):
        step = stepping(precision)
        rng = np.random.default_rng(3)
        losses[precision] = [float(step(*batch(rng))["loss"]) for _ in range(UPDATES)]
    rough, exact = losses["bfloat16"], losses["float32"]
    assert rough != exact
    np.testing.assert_allclose(rough, exact, rtol=2**-8)  # its spacing below 1
