"""What TensorBoard reads of a run: every kind of event, settings, the embedding."""

import io
import logging
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import tiny_run
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tiny_captioner import build

from show_attend_tell.config.captioner import DECODERS
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.data.vocabulary import SPECIAL
from show_attend_tell.training import tensorboard_log
from show_attend_tell.training.divergence import CHECK_INTERVAL
from show_attend_tell.training.tensorboard_log import (
    CurveLog,
    TrainingLog,
    hyperparameters,
)

STEPS, WORDS = (20, 40), 2
SCORES = {"BLEU-4": 20.0, "CIDEr": 50.0, "attention_peak": 0.95}


pytestmark = pytest.mark.usefixtures("numpy_searches")


@pytest.fixture(scope="module")
def model():
    return build(np.random.default_rng(1))


@pytest.fixture(scope="module")
def logged(model, tmp_path_factory):
    """Log two updates and validations, where one photo is absent and one damaged.

    Returns the run folder, the bar and the warnings.
    """
    folder = tmp_path_factory.mktemp("logged")
    work = tiny_run.prepare(folder / "prepared")
    (work / "made-up" / "photo-13.png").unlink()
    (work / "made-up" / "photo-14.png").write_bytes(b"\x89PNG damaged")
    experiment, bar, warnings = tiny_run.experiment(), mock.Mock(), []
    optimizer = SimpleNamespace(learning_rate=0.02, gradient_norm=1.5)
    with open_features(experiment, work) as reader, pytest.MonkeyPatch.context() as to:
        to.setattr(tensorboard_log, "WORDS", WORDS)
        to.setattr(logging.Logger, "warning", lambda self, *text: warnings.append(text))
        (split,) = load_splits(experiment, work, ["val"], reader)
        with TrainingLog(folder, experiment, split) as log:
            for step in (1, *STEPS):
                log.log_update(step, {"loss": step / 10}, optimizer, bar)
            for step in STEPS:
                log.log_scores(step, SCORES)
                log.log_samples(step, model, reader)
            log.log_embedding(model)
    return folder, bar, warnings


@pytest.fixture(scope="module")
def events(logged) -> EventAccumulator:
    """Everything that was logged."""
    kinds = ("tensors", "scalars", "images", "histograms")
    return EventAccumulator(str(logged[0]), dict.fromkeys(kinds, 0)).Reload()


def test_captions_are_logged_and_figures_only_of_readable_photos(events, logged):
    for k in range(tensorboard_log.SAMPLES):
        (text, _) = (
            e.tensor_proto.string_val[0] for e in events.Tensors(f"caption/{k}")
        )
        assert text.startswith(f"photo-{12 + k}: ".encode())
    tags = events.Tags()["tensors"]
    drawn = {tag for tag in tags if tag.startswith("attention/")}
    assert drawn == {"attention/0", "attention/3"}
    for tag in drawn:  # the same photo at each validation
        assert tuple(event.step for event in events.Tensors(tag)) == STEPS
        for event in events.Tensors(tag):
            width, height, png = event.tensor_proto.string_val
            assert Image.open(io.BytesIO(png)).size == (int(width), int(height))


def test_the_bar_shows_the_loss_and_absent_photos_are_one_warning(logged):
    _, bar, warnings = logged
    assert bar.set_postfix_str.call_args.args[0] == "loss 4.00"
    (photo,) = [text for text in warnings if "attention figures" in text[0]]
    assert "photo-13.png: no such photo" in str(photo[1])


def test_what_was_changed_is_the_first_hyperparameter_and_others_are_complete(events):
    tag = "_hparams_/session_start_info"
    content = events.SummaryMetadata(tag).plugin_data.content
    info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert info.group_name
    assert info.hparams["training.learning_rate"].number_value == pytest.approx(0.02)
    # Also defaults: TensorBoard shows a setting first if it differs among the runs.
    assert info.hparams["model.attention"].string_value == "soft"
    assert not any(name.startswith("transformer.") for name in info.hparams)
    assert min(info.hparams) == "changed"  # TensorBoard sorts by name
    scenes = load_experiment("scenes", ["training.epochs=3", "training.seed=7"])
    changed = "scenes, training.seed = 7, training.epochs = 3"
    assert hyperparameters(scenes)["changed"] == changed
    row = hyperparameters(tiny_run.experiment())
    assert (row["data.name"], row["model.dropout"]) == ("made-up", 0.2)
    assert all(isinstance(value, bool | int | float | str) for value in row.values())
    (settings,) = events.Tensors("settings")
    assert b"learning_rate = 0.02" in settings.tensor_proto.string_val[0]


def test_tables_of_other_decoders_are_no_hyperparameters(monkeypatch):
    third = DECODERS["transformer"]._replace(table="hard")
    monkeypatch.setitem(DECODERS, "third", third)
    hard = tiny_run.experiment(model={"attention": "hard"})
    assert not any(name.startswith("hard.") for name in hyperparameters(hard))


def test_a_loss_that_is_always_0_has_no_chart(tmp_path):
    optimizer = mock.Mock(learning_rate=0.1, gradient_norm=1.0)
    for weight, present in ((1.0, True), (0.0, False)):
        chosen = tiny_run.experiment(training={"doubly_stochastic": weight})
        folder = tmp_path / str(weight)
        with CurveLog(folder, chosen) as log:
            values = {"loss": 1.0, "attention_loss": 0.0}
            log.log_update(CHECK_INTERVAL, values, optimizer, mock.Mock())
        found = EventAccumulator(str(folder)).Reload().Tags()["tensors"]
        assert ("train/attention_loss" in found) == present
        assert "train/loss" in found


def test_the_projector_finds_the_words_and_their_vectors(logged, model):
    folder = logged[0]
    vectors = np.loadtxt(folder / "embedding.tsv", delimiter="\t")
    names = (folder / "embedding-words.tsv").read_text(encoding="utf-8").split("\n")
    most_frequent = slice(len(SPECIAL), len(SPECIAL) + WORDS)
    assert names[:-1] == list(model.vocabulary.words[most_frequent])
    embedding = np.asarray(model.decoder.embedding)[most_frequent]
    np.testing.assert_allclose(vectors, embedding, rtol=1e-2)
    panel = (folder / "projector_config.pbtxt").read_text(encoding="utf-8")
    assert 'tensor_path: "embedding.tsv"' in panel
    assert 'metadata_path: "embedding-words.tsv"' in panel
