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
    levels = [finding.level for finding in doctor._check_packages()]
    assert levels == ["OK", "OK", "problem"]


def test_doctor_reports_the_packaged_encoder():
    (finding,) = doctor._check_packaged_models()
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
    (finding,) = doctor._check_packaged_models()
    assert finding.level == level
    assert text in finding.text


@pytest.mark.parametrize("absent", ["everyday.confidence.npz", "everyday.reranker.npz"])
def test_doctor_reports_what_is_missing_beside_the_default_model(
    monkeypatch, tmp_path, absent
):
    whole = pretrained.SHIPPED
    names = {"everyday.keras", "everyday.reranker.npz", "everyday.confidence.npz"}
    for name in names - {absent}:
        (tmp_path / name).symlink_to(whole.with_name(name))
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path / "everyday.keras")
    (missing,) = doctor._check_packaged_models()
    assert missing.level == "problem"
    assert f"{absent} is missing" in missing.text


def test_doctor_reports_a_damaged_encoder(monkeypatch):
    monkeypatch.setattr(quantised_weights, "SHA256", "0" * 64)
    (damaged,) = doctor._check_packaged_models()
    assert damaged.level == "problem"
    assert "vgg16_8bit.npz" in damaged.text


def test_doctor_reports_another_backend_of_keras(monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    (finding,) = doctor._check_tensorflow()
    assert finding.level == "problem"
    assert "KERAS_BACKEND=tensorflow" in finding.text
