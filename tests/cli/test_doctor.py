"""Findings of the doctor on machines with missing parts."""

from importlib import metadata

import pytest

from show_attend_tell.cli import doctor
from show_attend_tell.models import pretrained


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


def imagenet_levels():
    return [finding.level for finding in doctor._check_imagenet_weights()]


def test_doctor_names_the_pretrained_models_encoder_and_the_default(keras_home):
    pretrained, default = doctor._check_imagenet_weights()
    assert "VGG16 (the pretrained model)" in pretrained.text
    assert "VGG19 (the default of [encoder])" in default.text
    assert imagenet_levels() == ["note", "note"]
    keras_home("vgg16")
    assert imagenet_levels() == ["OK", "note"]
    keras_home("vgg19")
    assert imagenet_levels() == ["OK", "OK"]


def test_doctor_works_without_a_pretrained_model(monkeypatch, tmp_path, keras_home):
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "absent.keras")
    absent, default = doctor._check_imagenet_weights()
    assert (absent.level, default.level) == ("note", "note")
    assert "absent.keras" in absent.text
    assert "VGG19" in default.text


def test_doctor_reports_a_damaged_pretrained_model(monkeypatch, tmp_path, keras_home):
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "damaged.keras")
    (tmp_path / "damaged.keras").write_bytes(b"PK")
    damaged, default = doctor._check_imagenet_weights()
    assert (damaged.level, default.level) == ("problem", "note")
    assert "install the package again" in damaged.text


def test_doctor_reports_another_backend_of_keras(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    (finding,) = doctor._check_tensorflow()
    assert finding.level == "problem"
    assert "KERAS_BACKEND=tensorflow" in finding.text
