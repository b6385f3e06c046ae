"""A clock that goes back, and files of the future: stages continue as usual."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from stages import SECONDS, count_end
from tally import Tally, scaled

pytestmark = [pytest.mark.torture, pytest.mark.timeout(7200, method="thread")]

SHARE = {"prepare": 4, "features": 8, "caption": 12, "train": 12, "eval": 12}
YEARS = 10 * 365 * 86_400  # seconds


def _move_to_the_future(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (time.time() + YEARS,) * 2)


@pytest.mark.parametrize("verb", SHARE)
def test_a_killed_stage_continues_after_the_clock_was_set_back(
    stage_of, tmp_path, verb
):
    tally = Tally(f"clock set back, {verb}", scaled(2), SHARE[verb])
    rng, stage = random.Random(verb), stage_of(verb)
    folder = tmp_path / "past"
    for _ in tally.within_time(range(tally.planned)):
        stage.reset(folder)
        change = rng.randint(1, stage.change_count)
        done = stage.start(folder, kill_at=change).end(SECONDS)
        assert done.code in (0, -signal.SIGKILL), done
        _move_to_the_future(folder)
        case = f"{verb}, killed at change {change}"
        count_end(tally, stage, folder, case, clock_back=True)
    tally.finish()
