"""The program that measures RAM's error by the price of a glimpse."""

import runpy
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[4] / "research" / "glimpse_prices.py"


def test_without_prepared_digits_it_ends_in_one_line(tmp_path, monkeypatch):
    folders = ["--work", str(tmp_path), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["glimpse_prices.py", "translated", *folders])
    with pytest.raises(SystemExit, match="error: .*run `prepare` first") as ended:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert "\n" not in ended.value.code
