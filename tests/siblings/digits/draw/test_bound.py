"""The importance-weighted bound: against quadrature, and falling with samples."""

import numpy as np
import pytest
import tiny_draw as tiny
from keras import ops

from show_attend_tell.siblings.digits.draw.bound import Measurer, Sampler

QUICK = {"steps": 2, "attention": False, "latent": 3}


def binary(rng, rows, model):
    shape = (rows, model.height, model.width)
    return (255 * rng.integers(0, 2, shape)).astype(np.uint8)


def log_p(model, image):
    """Return log p(x) of a model with one step and one z, by quadrature."""
    z = np.linspace(-8, 8, 4001, dtype=np.float32)
    canvas = ops.convert_to_numpy(model.generate(z[:, None, None])["canvas"])[:, -1]
    x = image.ravel() / 255
    log_likelihood = -(np.logaddexp(0, canvas) - x * canvas).sum(1).astype(float)
    prior = np.exp(-(z.astype(float) ** 2) / 2) / np.sqrt(2 * np.pi)
    return np.log(np.sum(np.exp(log_likelihood) * prior) * (z[1] - z[0]))


def test_the_weighted_bound_reaches_the_likelihood(rng):
    model = tiny.build(rng, 3, 3, steps=1, latent=1, attention=False)
    images = binary(rng, 3, model)
    found = Measurer(model).weighted_bound(images, 20_000)
    expected = [-log_p(model, image) for image in images]
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_bound_falls_with_the_number_of_samples(rng):
    model = tiny.build(rng, **QUICK)
    images = np.repeat(binary(rng, 1, model), 200, axis=0)
    measurer = Measurer(model)
    runs = {k: measurer.weighted_bound(images, k, seed=k) for k in (1, 10, 100)}
    means = {k: values.mean() for k, values in runs.items()}
    errors = {k: values.std() / 14 for k, values in runs.items()}
    assert means[1] - means[10] > 2 * (errors[1] + errors[10])
    assert means[10] - means[100] > 2 * (errors[10] + errors[100])
    whole = measurer.bound(images, seed=7).whole
    assert abs(whole.mean() - means[1]) < 4 * (errors[1] + whole.std() / 14)


def test_a_batch_larger_than_one_call_is_measured_whole(rng, monkeypatch):
    model = tiny.build(rng, **QUICK)
    images = binary(rng, 7, model)
    whole = Measurer(model).bound(images)
    monkeypatch.setattr("show_attend_tell.siblings.digits.draw.bound.BATCH", 3)
    parts = Measurer(model).bound(images)
    # The noise is the same stream, in whatever batches it is used.
    np.testing.assert_allclose(parts.whole, whole.whole, rtol=1e-5)
    assert Measurer(model).weighted_bound(images, 2).shape == (7,)


def test_samples_depend_on_their_seed_alone(rng):
    model = tiny.build(rng, **QUICK)
    one, again, other = (Sampler(model)(5, seed)["canvas"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-3
    assert len({canvas[-1].tobytes() for canvas in one}) == 5
    assert Sampler(model)(2, 1)["canvas"][1] == pytest.approx(one[1], abs=1e-5)
