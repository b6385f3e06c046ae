"""A disk that is full: one line, exit 1, and the earlier artefact as it was."""

import random
import shutil
from pathlib import Path

import child_process
import command_line
import pytest
from stages import SECONDS, Stage, content_of, count_end
from tally import Tally, scaled

POINTS = {"prepare": 6, "features": 5, "caption": 4, "train": 4, "eval": 3}
SHARE = {"prepare": 5, "features": 12, "caption": 20, "train": 25, "eval": 20}


def _sizes(stage: Stage) -> list[int]:
    """Return file sizes at which some write of the stage does not fit."""
    found = {
        path.stat().st_size
        for part in stage.parts
        for path in (stage.reference / part).rglob("*")
        if path.is_file() and path.stat().st_size
    }
    return sorted({0, 1, *(size - 1 for size in found), *(s // 2 for s in found)})


def _snapshot(folder: Path, parts: list[str]) -> dict[Path, object]:
    """Return the finished artefacts of a folder, without what a stage may replace."""
    return {
        path: content_of(path)
        for part in parts
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
        and path.suffix in (".safetensors", ".npz", ".h5", ".json", ".jsonl", ".toml")
    }


@pytest.mark.parametrize("verb", POINTS)
def test_a_full_disk_loses_nothing(stage_of, tmp_path, verb):
    times = scaled(POINTS[verb])  # each counts twice: refused, and then continued
    tally = Tally(f"full disk, {verb}", 2 * times, SHARE[verb])
    stage, folder = stage_of(verb), tmp_path / "full"
    rng = random.Random(verb)
    sizes = _sizes(stage)
    rng.shuffle(sizes)
    for number in tally.within_time(range(times)):
        size = sizes[number % len(sizes)]
        stage.reset(folder)
        again = number % 2 == 1 and verb != "train"
        if again:  # over artefacts that an earlier run wrote
            done = stage.start(folder).end(SECONDS)
            assert done.code == 0, done
        before = _snapshot(folder, stage.parts) if again else {}
        done = stage.start(folder, file_size=size).end(SECONDS)
        case = f"{verb}, files of at most {size} bytes{', run again' if again else ''}"
        outcome, signature = command_line.judge(done)
        after = _snapshot(folder, stage.parts)
        lost = [p.name for p, value in before.items() if after.get(p) != value]
        if lost and outcome != "failed":
            outcome, signature = "failed", f"earlier artefact lost: {lost[0]}"
        tally.count(case, outcome, signature)
        if outcome != "failed":
            count_end(tally, stage, folder, f"{case}, when there is room again")


def test_export_to_a_full_disk_leaves_the_earlier_file(world, tmp_path):
    tally = Tally("full disk, export", scaled(2), 30)
    out = tmp_path / "small.safetensors"
    arguments = ["export", str(world.model), "--format", "half", "--out", str(out)]
    for size in (1000, 9000):
        shutil.copy(world.model, out)
        whole = out.read_bytes()
        done = child_process.run(arguments, tmp_path, SECONDS, file_size=size)
        outcome, signature = command_line.judge(done)
        if outcome == "refused" and out.read_bytes() != whole:
            outcome, signature = "failed", "earlier export lost"
        tally.count(f"export half, files of at most {size} bytes", outcome, signature)
    tally.finish()
