"""Kill, stop and continue stages: the results must equal those of a single run."""

import os
import random
import signal
import time
from pathlib import Path

import command_line
import pytest
from stages import SECONDS, Stage, count_end, differences
from tally import Tally, scaled

CHAIN = 6  # kills before a stage is left to end
# Stage -> kills, planned kills, seconds in a run of 15 minutes.
STAGES = {
    "prepare": (48, 18),
    "features": (30, 30),
    "caption": (12, 35),
    "train": (12, 50),
    "eval": (6, 25),
}
STOPPED = {"prepare": 3, "features": 8, "caption": 10, "train": 15, "eval": 10}
CLOCK = {"prepare": 4, "features": 8, "caption": 12, "train": 12, "eval": 12}
YEARS = 10 * 365 * 86_400  # seconds


def _kill(stage: Stage, folder: Path, rng: random.Random) -> tuple[str, object]:
    """Kill a run at a random time, or at a random change of a file."""
    if rng.random() < 0.5:
        change = rng.randint(1, stage.change_count)
        return f"change {change}", stage.start(folder, kill_at=change).end(SECONDS)
    moment = rng.uniform(0, stage.seconds)
    child = stage.start(folder)
    child.signal(signal.SIGKILL, moment)
    return f"{moment:.3f} s", child.end(SECONDS)


@pytest.mark.parametrize("verb", STAGES)
def test_killed_stages_continue_to_equal_results(stage_of, tmp_path, verb):
    kills, share = STAGES[verb]
    tally = Tally(f"kill -9, {verb}", scaled(kills), share)
    rng, stage = random.Random(verb), stage_of(verb)
    folder = tmp_path / "killed"
    for chain in tally.within_time(range(max(1, tally.planned // CHAIN))):
        stage.reset(folder)
        moments = []
        for _ in range(CHAIN):
            moment, done = _kill(stage, folder, rng)
            moments.append(moment)
            if done.code not in (0, -signal.SIGKILL):
                outcome, signature = command_line.judge(done)
                signature = signature or "refused: " + done.err.strip()[-150:]
                tally.count(f"{verb}, {chain}: {moments}", "failed", signature)
                break
        else:
            case = f"{verb}, {chain}: killed at {moments}"
            count_end(tally, stage, folder, case, CHAIN)


@pytest.mark.parametrize("verb", STOPPED)
def test_stopped_stages_end_in_order_and_continue(stage_of, tmp_path, verb):
    """SIGTERM exits with 143, SIGINT with 130, or 0 where the work was done."""
    tally = Tally(f"SIGTERM and SIGINT, {verb}", scaled(2), STOPPED[verb])
    rng, stage = random.Random(verb), stage_of(verb)
    folder = tmp_path / "stopped"
    for number in tally.within_time(range(tally.planned)):
        stage.reset(folder)
        which = (signal.SIGTERM, signal.SIGINT)[number % 2]
        moment = rng.uniform(0.02, stage.seconds)
        child = stage.start(folder)
        child.signal(which, moment)
        done = child.end(SECONDS)
        case = f"{verb}, {which.name} after {moment:.2f} s"
        expected = (0, 128 + which)
        if done.signature or "Traceback" in done.err:
            tally.count(case, *command_line.judge(done))
        elif done.code not in expected:
            text = f"{which.name}: exit {done.code} in place of {128 + which}"
            tally.count(case, "failed", text)
        else:
            count_end(tally, stage, folder, case)


@pytest.mark.parametrize("verb", STOPPED)
def test_two_processes_on_one_folder_lose_nothing(stage_of, tmp_path, verb):
    """Of two runs that start together each succeeds or is refused in one line."""
    tally = Tally(f"two processes, {verb}", scaled(1), STOPPED[verb])
    stage, folder = stage_of(verb), tmp_path / "both"
    for number in tally.within_time(range(tally.planned)):
        stage.reset(folder)
        children = [stage.start(folder) for _ in range(2)]
        ends = [child.end(SECONDS) for child in children]
        for done in ends:
            case = f"{verb}, {number}: exits {[d.code for d in ends]}"
            tally.count(case, *command_line.judge(done))
        if not any(done.code == 0 for done in ends):
            tally.count(case, "failed", "neither of two processes succeeded")
        elif lost := differences(folder, stage.reference, stage.parts):
            text = f"after two processes: {', '.join(lost[:3])}"
            tally.count(case, "failed", text)


@pytest.mark.parametrize("verb", CLOCK)
def test_a_killed_stage_continues_after_the_clock_was_set_back(
    stage_of, tmp_path, verb
):
    tally = Tally(f"clock set back, {verb}", scaled(2), CLOCK[verb])
    rng, stage = random.Random(verb), stage_of(verb)
    folder = tmp_path / "past"
    for _ in tally.within_time(range(tally.planned)):
        stage.reset(folder)
        change = rng.randint(1, stage.change_count)
        done = stage.start(folder, kill_at=change).end(SECONDS)
        assert done.code in (0, -signal.SIGKILL), done
        for path in folder.rglob("*"):
            os.utime(path, (time.time() + YEARS,) * 2)
        case = f"{verb}, killed at change {change}"
        count_end(tally, stage, folder, case, clock_back=True)
