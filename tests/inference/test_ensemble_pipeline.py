"""Ensembles of model files and mirrored photos, from Python and the command line."""

import json

import numpy as np
import oracle
import pytest
from checks import mean_of_reads
from tiny_captioner import END, START, outputs_of
from tiny_pipeline import DECODING

import show_attend_tell as sat
from show_attend_tell.data.preprocessing import load_photo


@pytest.fixture(scope="module")
def pipeline(keras_pipeline):
    """A pipeline with the engine of Keras."""
    return keras_pipeline


@pytest.fixture(scope="module")
def other(pipeline, tmp_path_factory):
    """The file of a model with other weights."""
    model = sat.Captioner.from_config(pipeline.captioner.get_config())
    for ours, theirs in zip(model.weights, pipeline.captioner.weights, strict=True):
        ours.assign(theirs[..., ::-1] if len(theirs.shape) == 2 else theirs)
    path = tmp_path_factory.mktemp("other") / "other.safetensors"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def ensemble(pipeline, other):
    """Two models over photos and their mirror images."""
    return sat.load([pipeline.file, other], mirror=True)


def test_a_pipeline_of_a_captioner_captions_as_the_pipeline_of_its_file(
    pipeline, photo
):
    alone = sat.CaptioningPipeline(pipeline.captioner, pipeline.encoder)
    caption, expected = alone.caption(photo), pipeline.caption(photo)
    assert (caption.text, caption.log_prob) == (expected.text, expected.log_prob)


def test_an_ensemble_captions_a_photo_by_the_mean_of_models_and_views(
    pipeline, other, ensemble, photo
):
    caption = ensemble.caption(photo)
    assert ensemble.file == (pipeline.file, other)
    square = ensemble.encoder.preprocess(load_photo(photo))
    views = pipeline.encoder.encode(np.stack([square, square[:, ::-1]]))
    tokens = pipeline.captioner.vocabulary.encode(caption.words)
    targets = [*tokens, END][: DECODING["max_words"]]
    T, (rows, columns) = len(targets), pipeline.captioner.grid
    reads = []
    for member in (pipeline.captioner, sat.load(other).captioner):
        for flipped, view in enumerate(views):
            read = outputs_of(member, view[None], np.array([[START, *tokens]]))
            read = {name: np.array(values[0, :T]) for name, values in read.items()}
            alpha = read["alpha"].reshape(T, rows, columns)
            read["alpha"] = alpha[..., ::-1] if flipped else alpha
            reads.append(read)
    expected = mean_of_reads(reads)
    log_p = oracle.log_likelihood(expected["logits"], targets)
    assert caption.log_prob == pytest.approx(log_p, rel=1e-4)
    alpha = expected["alpha"][: len(tokens)]
    np.testing.assert_allclose(caption.attention, alpha, rtol=1e-3, atol=1e-5)


def test_the_command_line_averages_models_into_a_file(
    pipeline, other, photo, command, tmp_path, monkeypatch, ensemble
):
    loaded = []

    def load(model, weights, **options):
        loaded.append((model, options))
        return ensemble

    monkeypatch.setattr("show_attend_tell.inference.pipeline.load", load)
    models = ("--model", pipeline.file, "--model", other)
    code, lines, _ = command(photo, *models, "--mirror")
    assert (code, lines) == (0, [f"{photo}: {ensemble.caption(photo).text}"])
    options = {"mirror": True, "reranker": None, "engine": None}
    assert loaded == [((pipeline.file, other), options)]
    out = tmp_path / "captions.jsonl"
    assert command(photo, *models, "--mirror", "--out", out)[0] == 0
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row["made_by"].startswith("model.safetensors ")
    assert " + other.safetensors " in row["made_by"]
    assert row["made_by"].endswith("beam 3, mirrored photos too")


def test_models_of_other_words_end_the_command_in_one_line(
    pipeline, photo, command, tmp_path
):
    config = pipeline.captioner.get_config()
    config["vocabulary"] = [*config["vocabulary"][:-1], "green"]
    path = tmp_path / "green.safetensors"
    sat.Captioner.from_config(config).save(path)
    models = ("--model", pipeline.file, "--model", path)
    code, _, err = command(photo, *models)
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith(f"error: {path}: the models of an ensemble must have one")
