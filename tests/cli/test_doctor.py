"""Findings of the doctor on machines with missing parts."""

from importlib import metadata

from show_attend_tell.cli import doctor


def test_doctor_names_the_scores_that_need_java(monkeypatch):
    monkeypatch.setenv("PATH", "")
    ((level, text),) = doctor._check_java()
    assert level == "note"
    assert "METEOR" in text


def test_doctor_names_packages_that_are_missing(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    levels = [level for level, _ in doctor._check_packages()]
    assert levels == ["OK", "OK", "problem"]


def test_doctor_reports_another_backend_of_keras(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    ((level, text),) = doctor._check_backend()
    assert level == "problem"
    assert "must be tensorflow or jax. Received: 'torch'" in text
