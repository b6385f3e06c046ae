"""What the doctor finds on a machine that lacks something."""

from importlib import metadata

from show_attend_tell.cli import doctor


def test_doctor_says_what_is_lost_without_java(monkeypatch):
    monkeypatch.setenv("PATH", "")
    (finding,) = doctor._java()
    assert finding.level == "note"
    assert "METEOR" in finding.text


def test_doctor_names_packages_that_are_missing(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    assert [f.level for f in doctor._packages()] == ["OK", "problem"]


def test_doctor_finds_weights_that_keras_has_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert doctor._imagenet_weights().level == "note"
    file = tmp_path / "models" / "vgg19_weights_tf_dim_ordering_tf_kernels_notop.h5"
    file.parent.mkdir()
    file.touch()
    assert doctor._imagenet_weights().level == "OK"
