"""Training that diverges: it stops, keeps what was good, and explains itself."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightly import nightly
from refusals import refusal, refused
from tiny_run import experiment
from tiny_training import STEPS, QuickStep, go, read_checkpoint

from show_attend_tell.config.runs import CHECKPOINT, MODEL
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import TrainingError
from show_attend_tell.training import train
from show_attend_tell.training.divergence import (
    CHECK_INTERVAL,
    EXTREME_LOSS,
    HIGH_LOSS,
    HIGH_UPDATES,
    CaptionMonitor,
    LossMonitor,
    MonitoredLoss,
    fault_of_metric,
)
from show_attend_tell.training.train import CaptionTask

WORDS = 50  # of the vocabulary; a uniform guess has a loss of log 50 = 3.9


def values(words):
    return {"loss": words, "word_loss": words}


def feed(losses, warmup=0):
    """Check losses of updates 1, 20, 40...; return the update that is refused."""
    monitor = LossMonitor(MonitoredLoss(WORDS), warmup)
    for number, loss in enumerate(losses):
        step = max(number * CHECK_INTERVAL, 1)
        try:
            monitor.check(step, values(loss))
        except FloatingPointError:
            return step
    return None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["loss", "word_loss"])
def test_a_loss_that_is_not_finite_is_refused(value, which):
    monitor = LossMonitor(MonitoredLoss(WORDS), warmup=10**6)
    bad = {**values(3.0), which: value}
    with pytest.raises(FloatingPointError, match="features may be damaged"):
        monitor.check(1, bad)
    monitor.check(1, values(3.0))
    with pytest.raises(FloatingPointError, match=r"loss of update 20 is"):
        monitor.check(20, bad)


@given(st.lists(st.floats(0, HIGH_LOSS * 4.0), min_size=1, max_size=30))
def test_losses_up_to_ten_times_the_first_are_accepted(losses):
    assert feed([4.0, *losses]) is None


@given(high=st.integers(0, 20), factor=st.floats(1.01 * HIGH_LOSS, 0.99 * EXTREME_LOSS))
def test_a_high_loss_is_refused_after_a_hundred_updates(high, factor):
    refused = feed([4.0, 3.0, *[4.0 * factor] * high, 3.0])
    first = 2 * CHECK_INTERVAL
    expected = first + HIGH_UPDATES if high > HIGH_UPDATES // CHECK_INTERVAL else None
    assert refused == expected


def test_an_extreme_loss_is_refused_immediately_and_warmup_is_excepted():
    assert feed([4.0, 1.01 * 4 * EXTREME_LOSS]) == CHECK_INTERVAL
    assert feed([4.0, *[1e9] * 4, 3.0, 3.0], warmup=4 * CHECK_INTERVAL) is None
    assert feed([4.0, *[1e9] * 5], warmup=4 * CHECK_INTERVAL) == 5 * CHECK_INTERVAL


def test_a_loss_below_that_of_a_uniform_guess_is_never_high():
    assert feed([0.01, *[math.log(WORDS)] * 20]) is None
    assert feed([0.01, *[1.1 * math.log(WORDS)] * 20]) is not None


def test_a_resumed_monitor_compares_with_the_first_loss_of_the_run():
    resumed = LossMonitor(MonitoredLoss(WORDS), 0, first=4.0)
    assert not resumed.is_due(CHECK_INTERVAL + 1)
    assert resumed.is_due(2 * CHECK_INTERVAL)
    with pytest.raises(FloatingPointError, match="at the first update it was 4"):
        resumed.check(2 * CHECK_INTERVAL, values(1e6))


@pytest.mark.parametrize(
    ("captions", "attention", "warned"),
    [
        ([["a", "dog"]] * 3, (0.3, 0.5), "update 3: 3 of 3 captions are 'a dog'"),
        ([["a", "dog"]] * 2 + [["cat"]], (), "update 3: 2 of 3 captions are 'a dog'"),
        ([[]] * 3, (), "all 3 captions are empty"),
        ([[]], (), "all 1 captions are empty"),
        ([["a"], ["a", "dog"]], (0.3, 0.5), None),
        ([["a"], []], (), None),
        ([["a"]], (), None),
        ([], (), None),
        ([["a"]], (0.0, 1.0), "attention has collapsed: 100% of it"),
        ([["a"]], (0.0, 0.5), "attention has stopped moving: the variance"),
    ],
)
def test_each_fault_of_validation_captions_is_one_warning(
    captions, attention, warned, caplog
):
    watch, names = CaptionMonitor(), ("attention_movement", "attention_peak")
    for step in (3, 6):
        watch(step, captions, dict(zip(names, attention, strict=False)))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == bool(warned)
    if warned:
        assert caplog.records[0].levelname == "WARNING"
        assert re.search(warned, messages[0])


def test_captions_that_people_repeat_too_are_no_fault(caplog):
    references = [[["a", "dog"]], [["a", "dog"]], [["a", "dog"], ["a", "cat"]], [["x"]]]
    watch = CaptionMonitor(references)
    watch(3, [["a", "dog"]] * 4, {})
    assert not watch.repetitions
    assert not caplog.records
    watch = CaptionMonitor([[[str(k)]] for k in range(4)])
    watch(3, [["a", "dog"]] * 4, {})
    assert watch.repetitions == {3: "4 of 4 captions are 'a dog'"}


@pytest.mark.nightly
def test_a_training_that_ends_in_equal_captions_says_so(
    work, tmp_path, monkeypatch, quick, caplog
):
    said = {}

    def validate(model, reader, split, decoding):
        captions = {photo.id: said.get(photo.id, ["a", "a"]) for photo in split.photos}
        return {"BLEU-4": 1.0, "CIDEr": 1.0}, captions

    monkeypatch.setattr(train, "validate", validate)
    go(work, tmp_path, training={"epochs": 1})
    last = caplog.records[-1].getMessage()
    assert "the saved model, of update 3: 4 of 4 captions are 'a a'" in last
    assert "in 3 updates: train on more photos or for more training.epochs" in last
    caplog.clear()
    said |= {f"photo-{k}": [str(k)] for k in range(16)}
    go(work, tmp_path, overwrite=True, training={"epochs": 1})
    assert "the saved model" not in caplog.text


ONE = [[["a", "red", "square", "runs"], ["red"]]]
LONG, SHORT = ONE * 5, [[["red", "square"]]] * 5


@pytest.mark.parametrize(
    ("metric", "references", "fault"),
    [
        ("CIDEr", LONG, ""),
        ("BLEU-4", LONG, ""),
        ("BLEU-4", ONE, ""),
        ("CIDEr", SHORT, ""),
        ("BLEU-4", LONG + SHORT, ""),
        ("CIDEr", ONE, "CIDEr of a single .* 0 .*add .* --set training.metric=BLEU-4$"),
        ("CIDEr", SHORT[:1], "CIDEr of a single validation photo .* add validation ph"),
        ("BLEU-4", SHORT, "5 of 5 validation photos .* --set training.metric=CIDEr$"),
        (
            "BLEU-4",
            LONG[:4] + SHORT,
            "5 of 9 validation photos have no cap",
        ),
        ("BLEU-4", SHORT[:1], "add validation photos and pass --set training.metric=C"),
    ],
)
def test_a_metric_that_cannot_select_a_model_names_the_other(metric, references, fault):
    found = fault_of_metric(metric, references)
    assert bool(found) == bool(fault)
    assert re.search(fault, found)


@pytest.mark.nightly
def test_an_unfit_metric_is_a_warning_before_training(work, tmp_path, quick, caplog):
    go(work, tmp_path, training={"epochs": 1})  # captions of three words, BLEU-4
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings[0].startswith("BLEU-4 counts sequences of four words, and 4 of 4")
    caplog.clear()
    go(work, tmp_path, name="other", training={"epochs": 1, "metric": "CIDEr"})
    assert "counts sequences" not in caplog.text


def test_a_training_watches_the_attention_of_its_validations(monkeypatch, caplog):
    task = object.__new__(CaptionTask)
    task.reader = task.validation = None
    task.experiment, task._watch = experiment(), CaptionMonitor()
    scores = {"attention_peak": 1.0}
    monkeypatch.setattr(train, "validate", lambda *_: (scores, {"a.jpg": ["a"]}))
    assert task.validate(None, 3) == scores
    assert "attention has collapsed" in caplog.text


def damage_after(patch, step, value):
    """Set a weight to a value after update `step`; the loss stays as it is."""
    real = QuickStep.__call__

    def damaged(self, *batch):
        found = real(self, *batch)
        if int(self.model.optimizer.iterations) == step:
            weight = self.model.trainable_variables[1]
            weight.assign(np.full(weight.shape, value, np.float32))
        return found

    patch.setattr(QuickStep, "__call__", damaged)


def finite(folder):
    arrays, position = read_checkpoint(folder)
    assert all(np.isfinite(array).all() for array in arrays.values())
    return position["step"]


@pytest.mark.parametrize(
    ("step", "value"),
    [
        (1, np.nan),
        (STEPS + 1, np.inf),
        *nightly((STEPS, np.inf), (2 * STEPS, np.nan)),
    ],
)
def test_weights_that_are_not_finite_stop_training_and_are_not_written(
    work, tmp_path, monkeypatch, quick, value, step
):
    damage_after(monkeypatch, step, value)
    message = refusal(TrainingError, go, work, tmp_path)
    assert "training has diverged" in message
    assert "--overwrite and a training.learning_rate below 0.02" in message
    if step <= STEPS:
        assert "the last good checkpoint is none, the best model none" in message
        assert not (tmp_path / "tiny" / CHECKPOINT).exists()
        assert not (tmp_path / "tiny" / MODEL).exists()
    else:
        assert "checkpoint is that of update 3, the best model that of upd" in message
        assert finite(tmp_path) == STEPS
        load_captioner(tmp_path / "tiny" / MODEL)
    leftover = [p.name for p in (tmp_path / "tiny").iterdir() if p.name[0] == "."]
    assert not leftover


REWARD = {"objective": "cider", "hypotheses": 2, "batch_size": 8}


@pytest.mark.parametrize(
    ("objective", "rate"),
    [
        *nightly(({}, 1e9)),
        pytest.param({}, 1e30, marks=pytest.mark.slow),
        pytest.param(REWARD, 1e9, marks=pytest.mark.slow),
    ],
)
def test_an_absurd_learning_rate_is_one_line(work, tmp_path, objective, rate):
    with refused(TrainingError, "training has diverged"):
        go(work, tmp_path, training={"learning_rate": rate, **objective})
    run = tmp_path / "tiny"
    if (run / CHECKPOINT).exists():
        finite(tmp_path)
    if (run / MODEL).exists():
        load_captioner(run / MODEL)
