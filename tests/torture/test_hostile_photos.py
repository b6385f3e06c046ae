"""Hostile photos captioned from folders, and their features."""

import json
import os
import shutil
from pathlib import Path

import command_line
import hostile_photos
from tally import Tally, scaled

SECONDS = 120  # a folder that takes longer counts as hanging
CHUNK = 40  # photos in a folder
DAMAGED = 330


def _caption(world, folder: Path, out: Path) -> command_line.Done:
    arguments = ["caption", "--model", str(world.model), "--out", str(out), str(folder)]
    arguments += ["--engine", "keras"]  # chosen by name, it needs no line that says why
    return command_line.run(arguments, folder.parent, SECONDS)


def _paths_of(rows: Path) -> set[bytes]:
    """Return the file names of the rows of a JSON Lines file."""
    if not rows.exists():
        return set()
    lines = rows.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    return {
        os.path.basename(os.fsencode(json.loads(line)["path"])) for line in lines[:-1]
    }


def _write(folder: Path, photos: dict[bytes, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in photos.items():
        path = os.path.join(os.fsencode(folder), name)
        Path(os.fsdecode(path)).write_bytes(content)


def _count_folder(tally, world, folder, photos, required) -> None:
    """Caption a folder and count each photo; a run that fails fails all of them."""
    _write(folder, photos)
    out = folder.parent / f"{folder.name}.jsonl"
    done = _caption(world, folder, out)
    rows, lines = _paths_of(out), command_line.refusal_lines(done.err)
    crashed = done.signature or done.strays or done.code not in (0, 1)
    if crashed or (world.mark.exists() and not tally.failures):
        _, signature = command_line.judge(done)
        mark = "Ghostscript was started" if world.mark.exists() else signature
        tally.count(f"folder {folder.name}", "failed", f"folder lost: {mark}")
    for name in photos:
        shown = os.fsdecode(name)
        if name in rows:
            tally.count(shown, "handled")
        elif any(_names(line, shown) for line in lines):
            bad = name in required
            what = "a whole photo refused: " + _reason(lines, shown) if bad else ""
            tally.count(shown, "failed" if bad else "refused", what)
        elif not crashed:
            tally.count(shown, "failed", "neither captioned nor refused in a line")
    shown = [os.fsdecode(name) for name in photos]
    noise = [line for line in lines if not any(_names(line, name) for name in shown)]
    if noise and not crashed:
        signature = "a line that names no photo: " + command_line.general(noise[0])
        tally.count(f"folder {folder.name}: {noise[:3]!r}", "failed", signature)
    _count_second_run(tally, world, folder, out)


def _names(line: str, shown: str) -> bool:
    """Return whether a line names a file, with any substitute for undecodable bytes."""
    if shown in line:
        return True
    plain = shown.encode("utf-8", "replace").decode()
    printed = shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    escaped = shown.encode("utf-8", "backslashreplace").decode()
    spaced = " ".join(shown.split())
    return any(each in line for each in (plain, printed, escaped, spaced))


def _reason(lines: list[str], shown: str) -> str:
    (line, *_) = [line for line in lines if _names(line, shown)]
    return command_line.general(line.rpartition(": ")[2])


def _count_second_run(tally, world, folder: Path, out: Path) -> None:
    """The same command again must keep each row and succeed in the same way."""
    before = out.read_bytes() if out.exists() else b""
    done = _caption(world, folder, out)
    after = out.read_bytes() if out.exists() else b""
    if done.signature:
        tally.count(f"folder {folder.name}, again", "failed", done.signature)
    elif not after.startswith(before):
        tally.count(f"folder {folder.name}, again", "failed", "rows lost")
    elif done.code == 1 and "error: " in done.err:
        _, signature = command_line.judge(done)
        shown = signature or done.err[-200:]
        tally.count(f"folder {folder.name}, again", "failed", f"second run: {shown}")


def test_photos_captioned_from_folders(world, tmp_path):
    tally = Tally("hostile photos, folders", scaled(500), 50)
    photos, required = hostile_photos.corpus(scaled(DAMAGED))
    names = sorted(photos)
    chunks = [names[k : k + CHUNK] for k in range(0, len(names), CHUNK)]
    for number, chunk in enumerate(tally.within_time(chunks)):
        part = {name: photos[name] for name in chunk}
        _count_folder(tally, world, tmp_path / f"part-{number}", part, required)
        world.mark.unlink(missing_ok=True)


def test_features_of_hostile_photos_are_extracted_or_listed(world, tmp_path):
    tally = Tally("hostile photos, features", 2, 12)
    photos, _ = hostile_photos.corpus(scaled(DAMAGED))
    names = [n.decode() for n in photos if n.isascii() and n.decode().isprintable()]
    names = [n for n in names if not n.startswith((" ", "-")) and "," not in n]
    names = [n for n in names if '"' not in n and n != "=cmd|x.jpg"][:200]
    data = tmp_path / "data"
    _write(data, {name.encode(): photos[name.encode()] for name in names})
    rows = "".join(
        f"{name},a red circle,{'val' if k % 9 == 0 else 'train'}\n"
        for k, name in enumerate(names)
    )
    (data / "captions.csv").write_text("file,caption,split\n" + rows)
    change = ["--set", "data.source=folder"]
    arguments = world.stage("prepare", tmp_path, "--data", str(data), *change)
    done = command_line.run(arguments, tmp_path, SECONDS)
    tally.count("prepare of hostile photos", *command_line.judge(done))
    arguments = world.stage("features", tmp_path, *change)
    done = command_line.run(arguments, tmp_path, SECONDS)
    outcome, signature = command_line.judge(done, refused="extraction lost")
    if world.mark.exists():
        outcome, signature = "failed", "features: Ghostscript was started"
    tally.count("features of hostile photos", outcome, signature)
    world.mark.unlink(missing_ok=True)
    tally.finish()
