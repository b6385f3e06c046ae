"""Folders that may not be written: one line that names the place, and nothing lost."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import command_line
import pytest
from stages import SECONDS, count_end, differences
from tally import Tally, scaled

SHARE = {"prepare": 6, "features": 12, "caption": 15, "train": 15, "eval": 15}
INPUTS = {"prepare": [], "features": ["work/tiny/photos"], "caption": []}


@contextlib.contextmanager
def read_only(*roots: Path) -> Iterator[None]:
    """Take the right to write from files and folders for the body."""
    paths = [path for root in roots for path in (root, *root.rglob("*"))]
    modes = [(path, path.stat().st_mode) for path in paths]
    for path, mode in modes:
        path.chmod(mode & 0o555)
    try:
        yield
    finally:
        for path, mode in modes:
            path.chmod(mode)


@pytest.mark.parametrize("verb", SHARE)
def test_a_stage_that_cannot_write_is_refused_and_continues_later(
    stage_of, tmp_path, verb
):
    times = scaled(2)  # each counts twice: refused, and then continued
    tally = Tally(f"read-only output, {verb}", 2 * times, SHARE[verb])
    stage, folder = stage_of(verb), tmp_path / "locked"
    for number in tally.within_time(range(times)):
        stage.reset(folder)
        if verb == "prepare":
            (folder / "work").mkdir()
        (folder / "runs").mkdir(exist_ok=True)
        case = f"{verb}, {number}"
        with read_only(*(folder / part for part in stage.parts)):
            done = stage.start(folder, no_rights=True).end(SECONDS)
        written = "it wrote into a read-only folder"
        outcome, signature = command_line.judge(done, handled=written)
        if outcome == "refused" and str(folder) not in done.err:
            signature = "no path in: " + command_line.general(done.err)
            outcome = "failed"
        tally.count(case, outcome, signature)
        count_end(tally, stage, folder, f"{case}, when it can be written again")


@pytest.mark.parametrize("verb", SHARE)
def test_inputs_need_not_be_writable(stage_of, tmp_path, verb):
    tally = Tally(f"read-only input, {verb}", 1, SHARE[verb])
    stage, folder = stage_of(verb), tmp_path / "locked"
    stage.reset(folder)
    inputs = [folder / part for part in INPUTS.get(verb, ["work"])]
    with read_only(stage.world.data, stage.world.photos, *inputs):
        count_end(tally, stage, folder, verb, no_rights=True)
    tally.finish()


@pytest.mark.parametrize("verb", ["prepare", "features", "eval"])
def test_a_finished_stage_in_a_read_only_folder_stays_as_it_is(
    stage_of, tmp_path, verb
):
    tally = Tally(f"read-only results, {verb}", 1, SHARE[verb])
    stage, folder = stage_of(verb), tmp_path / "finished"
    stage.reset(folder)
    assert stage.start(folder).end(SECONDS).code == 0
    with read_only(*(folder / part for part in stage.parts)):
        done = stage.start(folder, no_rights=True).end(SECONDS)
    outcome, signature = command_line.judge(done)
    if lost := differences(folder, stage.reference, stage.parts):
        outcome, signature = "failed", f"results differ: {', '.join(lost[:3])}"
    tally.count(f"{verb} again", outcome, signature)
    tally.finish()
