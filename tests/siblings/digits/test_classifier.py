"""The classifiers of whole pictures, against NumPy."""

import numpy as np
import pytest
from keras import ops
from random_weights import randomised

from show_attend_tell.siblings.digits.classifier import PictureClassifier
from show_attend_tell.siblings.digits.settings import ClassifierSettings

SIDE, CLASSES = 20, 4


def expected(model, image):
    """Return the logits of one picture in float64."""
    hidden = image
    if model.settings.kind == "convolution":
        kernel, bias = (np.asarray(w, float) for w in model.convolution.weights)
        hidden = [
            [
                [
                    (image[y : y + 10, x : x + 10] * kernel[:, :, 0, f]).sum() + bias[f]
                    for f in range(8)
                ]
                for x in range(0, SIDE - 9, 5)
            ]
            for y in range(0, SIDE - 9, 5)
        ]
        hidden = np.maximum(hidden, 0)
    hidden = np.ravel(hidden)
    for layer in model.hidden:
        kernel, bias = (np.asarray(w, float) for w in layer.weights)
        hidden = np.maximum(hidden @ kernel + bias, 0)
    kernel, bias = (np.asarray(w, float) for w in model.act.weights)
    return hidden @ kernel + bias


@pytest.mark.parametrize(
    "changes",
    [{"widths": [5]}, {"widths": [6, 5]}, {"kind": "convolution", "widths": [5]}],
)
def test_logits_loss_and_error_equal_the_equations(rng, changes):
    model = PictureClassifier(ClassifierSettings(**changes), SIDE, CLASSES)
    randomised(model, rng, 0.2)
    images = rng.random((6, SIDE, SIDE), np.float32)
    labels = rng.integers(0, CLASSES, 6).astype("int32")
    outputs = model(ops.convert_to_tensor(images))
    logits = np.array([expected(model, image.astype(float)) for image in images])
    np.testing.assert_allclose(np.asarray(outputs["logits"]), logits, rtol=1e-4)
    values = {k: float(v) for k, v in model.losses_of(labels, outputs).items()}
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -logs[np.arange(6), labels].mean()
    assert values["loss"] == pytest.approx(loss, rel=1e-4)
    wrong = (logits.argmax(-1) != labels).mean()
    assert values["error"] == pytest.approx(100 * wrong)


def test_the_papers_networks_have_their_numbers_of_parameters():
    def parameters(canvas, **changes):
        model = PictureClassifier(ClassifierSettings(**changes), canvas)
        return sum(int(np.prod(w.shape)) for w in model.trainable_weights)

    dense = 784 * 256 + 256 + 256 * 256 + 256 + 2570
    assert parameters(28, widths=[256, 256]) == dense
    convolution = 8 * 100 + 8 + (8 * 11**2) * 256 + 256 + 2570
    assert parameters(60, kind="convolution", widths=[256]) == convolution
