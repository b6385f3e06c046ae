"""Findings of the doctor on machines with missing parts."""

from importlib import metadata

import pytest

from show_attend_tell.cli import doctor
from show_attend_tell.models import pretrained
from show_attend_tell.models.encoder import quantised_weights


def test_doctor_names_the_scores_that_need_java(monkeypatch):
    monkeypatch.setenv("PATH", "")
    (finding,) = doctor._check_java()
    assert finding.level == "note"
    assert "METEOR" in finding.text


def test_doctor_names_packages_that_are_missing(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    assert [f.level for f in doctor._check_packages()] == ["OK", "problem"]


@pytest.fixture
def keras_home(monkeypatch, tmp_path):
    """Use an empty home of Keras; returns a function that adds weights to it."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()

    def fetch(network):
        name = f"{network}_weights_tf_dim_ordering_tf_kernels_notop.h5"
        (tmp_path / "models" / name).touch()

    return fetch


def test_doctor_names_the_default_encoder(keras_home):
    (absent,) = doctor._check_imagenet_weights()
    assert absent.level == "note"
    assert "VGG19 (the default of [encoder])" in absent.text
    keras_home("vgg16")
    assert [found.level for found in doctor._check_imagenet_weights()] == ["note"]
    keras_home("vgg19")
    assert [found.level for found in doctor._check_imagenet_weights()] == ["OK"]


def test_doctor_reports_the_packaged_encoder():
    (finding,) = doctor._check_packaged_encoder()
    assert finding.level == "OK"
    assert "VGG16 with 8 bits per weight" in finding.text
    assert "vgg16_8bit.npz, 15.0 MB" in finding.text


@pytest.mark.parametrize(
    ("content", "level", "text"),
    [
        (None, "note", "model.keras"),
        (b"PK", "problem", "install the package again"),
    ],
    ids=["absent", "damaged"],
)
def test_doctor_reports_a_pretrained_model_that_cannot_be_loaded(
    monkeypatch, tmp_path, content, level, text
):
    file = tmp_path / "model.keras"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(pretrained, "SHIPPED", file)
    (finding,) = doctor._check_packaged_encoder()
    assert finding.level == level
    assert text in finding.text


def test_doctor_reports_what_is_missing_beside_the_default_model(monkeypatch, tmp_path):
    whole = pretrained.SHIPPED
    for name in ("flickr8k.keras", "flickr8k.reranker.npz", "flickr8k.confidence.npz"):
        (tmp_path / name).symlink_to(whole.with_name(name))
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "flickr8k.keras")
    assert [one.level for one in doctor._check_packaged_encoder()] == ["OK"]
    for name in ("flickr8k.confidence.npz", "flickr8k.reranker.npz"):
        (tmp_path / name).unlink()
        (missing,) = doctor._check_packaged_encoder()
        assert missing.level == "problem"
        assert f"{name} is missing" in missing.text


def test_doctor_reports_a_damaged_encoder(monkeypatch):
    monkeypatch.setattr(quantised_weights, "SHA256", "0" * 64)
    (damaged,) = doctor._check_packaged_encoder()
    assert damaged.level == "problem"
    assert "vgg16_8bit.npz" in damaged.text


def test_doctor_reports_another_backend_of_keras(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    (finding,) = doctor._check_tensorflow()
    assert finding.level == "problem"
    assert "KERAS_BACKEND=tensorflow" in finding.text


def test_a_java_without_output_is_named_by_its_path(monkeypatch, tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    (finding,) = doctor._check_java()
    assert (finding.level, finding.text) == ("OK", f"Java: {java}")
