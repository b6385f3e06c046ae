"""Training with the encoder's last convolution: start, objectives, resume, errors."""

import dataclasses
import functools
import itertools

import keras
import numpy as np
import pytest
from tiny_fine_tuning import FIRST, prepare_features, settings
from tiny_training import assert_resumes, score_in_turn, skip_captions

from show_attend_tell.config.runs import MODEL
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.splits import load_split, open_features
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import (
    EncoderError,
    ModelFileError,
)
from show_attend_tell.training.train import Trainer, train


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return prepare_features(tmp_path_factory.mktemp("work"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    skip_captions(monkeypatch)
    score_in_turn(monkeypatch, itertools.count())  # every validation is the best


def trainer_of(work, chosen, runs):
    """Return a Trainer before its first update; `runs` has the initial model."""
    made = []

    class Stop(Exception):
        pass

    def stop(trainer, *rest):
        made.append(trainer)
        raise Stop

    named = dataclasses.replace(chosen, name="x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", stop)
        with pytest.raises(Stop):
            train(named, work, runs, overwrite=True, progress=False)
    return made[0]


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """The folder of a frozen run and of one that starts from it, not trained."""
    folder = tmp_path_factory.mktemp("runs")
    started = settings(training={"init_from": "frozen"})
    for chosen in (settings("frozen", ""), started):
        (folder / chosen.name).mkdir()
        trainer_of(work, chosen, folder).model.save(folder / chosen.name / MODEL)
    return folder


def load(runs, name):
    return load_captioner(runs / name / MODEL)


def encoder_weights(**changes):
    """Return kernel and bias of the fine-tuned convolution before training."""
    chosen = settings().encoder
    return Encoder(dataclasses.replace(chosen, **changes)).trainable_weights[FIRST]


def test_the_layer_before_is_stored_beside_the_last_one(work):
    folder = work / "made-up"
    names = {path.name for path in folder.glob("*.h5")}
    assert {f"features-VGG16-block5_conv{k}.h5" for k in (2, 3)} <= names
    assert "features-VGG16-block5_conv2.mirror.h5" in names
    with FeatureReader(feature_path(folder, settings().encoder)) as reader:
        identity = reader.attributes["identity"]
    assert identity["layer"] == "block5_conv2"
    frozen = dataclasses.replace(settings().encoder, trainable_from="")
    assert identity["weights_digest"] == Encoder(settings().encoder)._digest
    assert identity["weights_digest"] != Encoder(frozen)._digest


def test_training_starts_at_the_encoders_convolution_and_the_models_decoder(
    work, runs, tmp_path
):
    frozen = load(runs, "frozen")
    frozen.save(tmp_path / "frozen.keras")
    chosen = settings(training={"init_from": str(tmp_path / "frozen.keras")})
    model = trainer_of(work, chosen, tmp_path).model
    kernel, bias = encoder_weights()
    np.testing.assert_array_equal(model.convolutions.kernels[0], kernel)
    np.testing.assert_array_equal(model.convolutions.biases[0], bias)
    assert float(model.annotation_scale) == float(frozen.annotation_scale)
    x = {}
    for key, first in (("tuned", FIRST), ("frozen", "")):
        with open_features(settings(first=first), work) as reader:
            data = load_split(settings(first=first), work, "val", reader)
            x[key] = reader.read(data.rows)
    tokens = np.array([[1, 4, 5, 6]] * len(x["tuned"]), np.int32)
    convolved = model.convolve(x["tuned"])
    np.testing.assert_allclose(x["frozen"], convolved, rtol=0.01, atol=0.01)
    ours = model({"annotations": x["tuned"], "tokens": tokens})["logits"]
    theirs = frozen({"annotations": convolved, "tokens": tokens})["logits"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    stored = frozen({"annotations": x["frozen"], "tokens": tokens})["logits"]
    np.testing.assert_allclose(ours, stored, atol=0.02)


def test_without_an_initial_model_the_scale_is_that_of_the_convolved_features(
    work, tmp_path
):
    trainer = trainer_of(work, settings(), tmp_path)
    with open_features(settings(), work) as reader:
        data = load_split(settings(), work, "train", reader)
        convolved = trainer.model.convolve(reader.read(data.rows))
    scale = float(trainer.model.annotation_scale)
    assert scale == pytest.approx(1 / convolved.std(), rel=1e-3)


@pytest.mark.slow
def test_training_moves_the_convolution_at_its_own_rate(work, runs, tmp_path):
    start = str(runs / "frozen" / MODEL)
    chosen = settings(training={"init_from": start})
    train(chosen, work, tmp_path, progress=False)
    model, (kernel, _) = load(tmp_path, "tuned"), encoder_weights()
    moved = np.abs(np.asarray(model.convolutions.kernels[0]) - kernel)
    steps = 3  # 12 photos of 1 or 2 captions
    assert 0 < moved.max() <= 1.1 * steps * settings().training.encoder_learning_rate
    decoder = np.asarray(load(runs, "frozen").decoder.w_h)
    assert np.abs(np.asarray(model.decoder.w_h) - decoder).max() > 100 * moved.max()


@pytest.mark.slow
def test_a_resumed_training_equals_an_uninterrupted_one(
    work, runs, tmp_path, monkeypatch
):
    skip_captions(monkeypatch)
    changes = {"init_from": str(runs / "frozen" / MODEL), "average_decay": 0.9}
    chosen = settings(encoder={"mirror": True}, training=changes)
    train_here = functools.partial(train, chosen, work, progress=False)
    assert_resumes(train_here, tmp_path, 2, "tuned")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "cider", "hypotheses": 2},
        {"precision": "bfloat16", "jit_compile": True},
    ],
    ids=["cider", "bfloat16"],
)
def test_other_objectives_and_bfloat16_train_it_too(work, runs, tmp_path, changes):
    start = str(runs / "tuned" / MODEL)
    changes = {"init_from": start, "encoder_learning_rate": 0.001, **changes}
    train(settings("again", training=changes), work, tmp_path, progress=False)
    kernels = [
        np.asarray(load(folder, name).convolutions.kernels[0])
        for folder, name in ((runs, "tuned"), (tmp_path, "again"))
    ]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-4
    assert np.isfinite(kernels[1]).all()


def test_convolutions_of_other_weights_than_the_features_are_refused(work, tmp_path):
    weights = tmp_path / "other.weights.h5"
    network = keras.applications.VGG16(
        include_top=False, weights=None, input_shape=(32, 32, 3)
    )
    network.save_weights(weights)
    chosen = settings(encoder={"weights": str(weights)})
    with pytest.raises(EncoderError, match="those that made the features") as error:
        train(chosen, work, tmp_path / "runs", progress=False)
    assert "--set encoder.weights=FILE" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fine_tuned_model_does_not_start_a_frozen_one(work, runs, tmp_path):
    start = str(runs / "tuned" / MODEL)
    chosen = settings("frozen", "", training={"init_from": start})
    message = "layer block5_conv3 instead of block5_conv2|another encoder"
    with pytest.raises(ModelFileError, match=message):
        train(chosen, work, tmp_path / "runs", progress=False)
