"""What TensorBoard reads of a run: every kind of event, settings, the embedding."""

import io

import numpy as np
import pytest
import tiny_run
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from show_attend_tell.data.vocabulary import SPECIAL
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.training import projector
from show_attend_tell.training import tensorboard_log as training_log
from show_attend_tell.training.tensorboard_log import table_row
from show_attend_tell.training.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train for two epochs; return the run's folder."""
    folder = tmp_path_factory.mktemp("logged")
    work = tiny_run.prepare(folder / "prepared")
    settings = tiny_run.experiment("tiny", training={"epochs": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_log, "EVERY", 1)
        patch.setattr(training_log, "SAMPLES", 1)
        return train(settings, work, folder / "runs", progress=False).folder


@pytest.fixture(scope="module")
def events(run) -> EventAccumulator:
    """Everything that the run logged."""
    kinds = ("tensors", "scalars", "images", "histograms")
    return EventAccumulator(str(run), dict.fromkeys(kinds, 0)).Reload()


def steps(events, tag) -> list[int]:
    return [event.step for event in events.Tensors(tag)]


def test_curves_rates_and_scores_are_logged(events):
    tags = set(events.Tags()["tensors"])
    assert {"train/loss", "train/learning_rate", "train/gradient_norm"} <= tags
    assert {"validation/BLEU-4", "validation/CIDEr"} <= tags


@pytest.mark.parametrize("name", ["entropy", "beta", "coverage"])
def test_how_attention_spreads_is_a_histogram_at_each_validation(events, name):
    tag = f"attention_spread/{name}"
    metadata = events.SummaryMetadata(tag)
    assert metadata.plugin_data.plugin_name == "histograms"
    assert steps(events, tag) == steps(events, "validation/CIDEr")


def test_the_same_photo_is_drawn_at_each_validation(events):
    assert steps(events, "attention/0") == steps(events, "validation/CIDEr")
    assert "attention/1" not in events.Tags()["tensors"]
    captions = [
        event.tensor_proto.string_val[0].decode()
        for event in events.Tensors("caption/0")
    ]
    assert all(text.startswith("photo-12: ") for text in captions)
    width, height, png = events.Tensors("attention/0")[0].tensor_proto.string_val
    picture = Image.open(io.BytesIO(png))
    assert picture.size == (int(width), int(height))


def test_settings_are_hyperparameters_so_that_runs_compare(events):
    tag = "_hparams_/session_start_info"
    content = events.SummaryMetadata(tag).plugin_data.content
    info = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert info.group_name
    assert info.hparams["training.learning_rate"].number_value == pytest.approx(0.02)
    assert info.hparams["model.attention"].string_value == "soft"


def test_every_setting_in_the_table_is_a_plain_value():
    row = table_row(tiny_run.experiment())
    assert row["data.name"] == "made-up"
    assert row["model.dropout"] == 0.2
    assert all(isinstance(value, bool | int | float | str) for value in row.values())


def test_the_projector_finds_the_words_and_their_vectors(run):
    model = load_captioner(run / "model.keras")
    vectors = np.loadtxt(run / "embedding.tsv", delimiter="\t")
    names = (run / "embedding-words.tsv").read_text(encoding="utf-8").split("\n")
    assert names[:-1] == list(model.vocabulary.words[len(SPECIAL) :])
    embedding = np.asarray(model.decoder.embedding)[len(SPECIAL) :]
    np.testing.assert_allclose(vectors, embedding, rtol=1e-2)
    config = (run / "projector_config.pbtxt").read_text(encoding="utf-8")
    assert 'tensor_path: "embedding.tsv"' in config
    assert 'metadata_path: "embedding-words.tsv"' in config


def test_only_the_most_frequent_words_are_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr(projector, "WORDS", 2)
    model = load_captioner(run / "model.keras")
    projector.write_embedding(tmp_path, model.decoder.embedding, model.vocabulary)
    assert len(np.loadtxt(tmp_path / "embedding.tsv", delimiter="\t")) == 2
