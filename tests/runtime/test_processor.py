"""What the processor is asked for, from files like those of Linux."""

import pytest

from show_attend_tell.cli import doctor
from show_attend_tell.models.encoder import network as encoder
from show_attend_tell.runtime import processor

TWO = """processor\t: 0
model name\t: A
flags\t\t: fpu avx512f {}

processor\t: 1
flags\t\t: fpu
"""


@pytest.fixture
def cpuinfo(monkeypatch, tmp_path):
    """Return a function that writes the file of a processor with more flags."""
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_CPUINFO", file)
    return lambda more: file.write_text(TWO.format(more))


def test_the_sets_are_those_of_the_first_processor(cpuinfo):
    assert processor.instruction_sets() is None
    processor._CPUINFO.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert processor.instruction_sets() is None
    cpuinfo("avx512_bf16")
    assert processor.instruction_sets() == {"fpu", "avx512f", "avx512_bf16"}


@pytest.mark.parametrize(
    ("flags", "precision", "words"),
    [
        ("avx512_bf16", "float32", "no matrix units"),
        ("avx512_bf16 amx_bf16", "bfloat16", "amx_bf16: "),
    ],
)
def test_photos_are_encoded_in_the_faster_precision(
    cpuinfo, monkeypatch, flags, precision, words
):
    monkeypatch.setattr(encoder, "_has_gpu", lambda: False)
    cpuinfo(flags)
    assert encoder.fastest_precision() == precision
    finding = list(doctor._check_processor())[-1]
    assert finding.text.startswith(words)
    assert finding.text.endswith(precision)


def test_unknown_processors_compute_in_float32(cpuinfo, monkeypatch):
    monkeypatch.setattr(encoder, "_has_gpu", lambda: False)
    assert encoder.fastest_precision() == "float32"
    monkeypatch.setattr(encoder, "_has_gpu", lambda: True)
    assert encoder.fastest_precision() == "bfloat16"
    assert list(doctor._check_processor())[-1].level == "note"
