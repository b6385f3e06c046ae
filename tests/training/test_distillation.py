"""Distillation: its loss in NumPy, the teachers' words, and trainings."""

import keras
import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_equal_leaves
from nightly import nightly
from refusals import refused
from scipy.special import rel_entr
from tiny_captioner import PAD
from tiny_training import (
    go,
    record_updates,
    skip_captions,
    start_run,
    train_first,
)

from show_attend_tell.config.settings import DistillationSettings
from show_attend_tell.data.encoder_identity import PACKAGED_DIGEST, ROUNDED_DIGEST
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.beam import softmax
from show_attend_tell.runtime.errors import (
    ConfigError,
    ModelFileError,
)
from show_attend_tell.training import distillation
from show_attend_tell.training.distillation import (
    distillation_loss,
    loss_of_batch,
    mean_outputs,
)
from show_attend_tell.training.workers import ALONE, Workers

DISTIL = {"objective": "distil", "epochs": 6, "doubly_stochastic": 0.0}


def distil(work, runs, name, teachers, model, **weights):
    """Train a student."""
    taught = {"teachers": teachers, **weights}
    tables = {"training": DISTIL, "model": model, "distillation": taught}
    return go(work, runs, name=name, **tables)


@pytest.mark.parametrize(
    ("truth_weight", "posterior", "attention"),
    [(0.3, 1.0, 0.5), *nightly((0.0, 0.0, 0.0), (1.0, 2.0, 2.0))],
)
def test_the_loss_of_a_batch_is_that_of_numpy(rng, truth_weight, posterior, attention):
    student, *teachers = (
        tiny.build(np.random.default_rng(k), {"doubly_stochastic": 0.7}, spread=1.0)
        for k in range(3)
    )
    features, inputs, targets = tiny.batch(rng, lengths=(4, 2, 0))
    settings = DistillationSettings(("a", "b"), 1.7, truth_weight, posterior, attention)
    x = {"annotations": features, "tokens": inputs}
    p, alpha = map(np.array, mean_outputs(teachers, x, targets, settings))

    mask = targets != PAD
    read = [tiny.expected(model, features, inputs) for model in (student, *teachers)]
    words = np.stack([softmax(r["logits"] / 1.7) for r in read[1:]])  # (M, B, T, K)
    truth = np.take_along_axis(words, targets[None, ..., None], -1)[..., 0]
    weights = np.prod(np.where(mask, truth, 1), axis=2) ** posterior  # (M, B)
    weights /= weights.sum(axis=0)
    assert np.ptp(weights) > 0.01 or posterior == 0
    taught = (weights[..., None, None] * words).sum(axis=0)
    np.testing.assert_allclose(p, taught, rtol=1e-4, atol=1e-6)
    alphas = np.stack([r["alpha"] for r in read[1:]])  # (M, B, T, L)
    shown = (weights[..., None, None] * alphas).sum(axis=0)
    np.testing.assert_allclose(alpha, shown, rtol=1e-4, atol=1e-6)
    p[0, 0] = np.eye(p.shape[-1])[2]  # 0 log 0 = 0
    loss = float(distillation_loss(student, x, targets, p, alpha, settings))
    logits = read[0]["logits"]
    divergence = 1.7**2 * rel_entr(p, softmax(logits / 1.7)).sum(axis=-1)
    q = np.take_along_axis(softmax(logits), targets[..., None], -1)[..., 0]
    received = (read[0]["alpha"] * mask[..., None]).sum(axis=1)  # (B, L)
    each = (
        (1 - truth_weight) * (divergence * mask).sum(axis=1)
        + attention * (rel_entr(alpha, read[0]["alpha"]).sum(axis=-1) * mask).sum(1)
        - truth_weight * (np.log(q) * mask).sum(axis=1)
        + 0.7 * ((1 - received) ** 2).sum(axis=-1)
    )
    assert loss == pytest.approx(each[:2].mean(), rel=1e-4)  # the last is padding


@pytest.mark.nightly
def test_a_student_equal_to_its_teacher_stays_as_it_is(rng):
    student = tiny.build(rng, {"doubly_stochastic": 0.0}, spread=1.0)
    teacher = Captioner.from_config(student.get_config())
    teacher.set_weights(student.get_weights())
    fixed = teacher.get_weights()
    features, inputs, targets = tiny.batch(rng)
    loss_of = loss_of_batch(student, [teacher], DistillationSettings(("a",)))
    x = {"annotations": keras.ops.convert_to_tensor(features), "tokens": inputs}
    assert float(loss_of(x, targets)) == pytest.approx(0, abs=1e-5)
    for slope in tiny.gradients(lambda: loss_of(x, targets), student).values():
        np.testing.assert_allclose(slope, 0, atol=1e-5)
    assert_equal_leaves(teacher.get_weights(), fixed)


@pytest.fixture(scope="module")
def started(work, tmp_path_factory):
    """The folder of the run of a teacher."""
    return start_run(work, tmp_path_factory.mktemp("runs"))


@pytest.mark.nightly
def test_a_student_of_another_width_learns_the_words_of_its_teachers(
    work, tmp_path, monkeypatch
):
    started = train_first(work, tmp_path, epochs=8)
    skip_captions(monkeypatch)
    updates = record_updates(monkeypatch)
    distil(work, started, "student", ["tiny", "tiny"], {"lstm_width": 6})
    losses = [float(values["loss"]) for values in updates]
    assert np.mean(losses[-3:]) < 0.5 * np.mean(losses[:3])
    teacher = load_captioner(started / "tiny" / "model.safetensors")
    assert teacher.settings.dropout == 0.2  # its file is as it was


def test_features_that_a_teacher_does_not_read_are_refused(rng, monkeypatch):
    models = [
        tiny.build(rng, {"encoder_identity": {"weights_digest": digest}})
        for digest in (ROUNDED_DIGEST, PACKAGED_DIGEST)
    ]
    monkeypatch.setattr(distillation, "load_captioner", lambda file: models[1])
    with pytest.raises(ModelFileError, match="features must be made by the teachers'"):
        distillation.make_distillation(
            None, models[0], None, (), ALONE, ["t.safetensors"]
        )


def test_several_workers_cannot_distil():
    workers = Workers(count=2)
    with pytest.raises(ConfigError, match="likelihood or cider on several workers"):
        distillation.make_distillation(None, None, None, (), workers, ())


def test_unfit_teachers_are_named_in_one_line(work, started, tmp_path):
    with refused(ModelFileError, "must be a .safetensors file, a run or"):
        distil(work, started, "other", ["tinny"], {})
    model = load_captioner(started / "tiny" / "model.safetensors")
    words = [*model.vocabulary.words[:-1], "another"]
    path = tmp_path / "other.safetensors"
    Captioner.from_config({**model.get_config(), "vocabulary": words}).save(path)
    with refused(ModelFileError, "another vocabulary"):
        distil(work, started, "other", [str(path)], {})
    assert not (started / "other").exists()


def test_models_without_attention_neither_teach_nor_learn_where_to_look(work, started):
    with refused(ConfigError, "the experiment without it; set"):
        distil(
            work, started, "blind", ["tiny"] * 2, {"attention": "none"}, attention=0.5
        )
