"""Hostile photos captioned from folders and, by ``sat.load``, one by one."""

import io
import json
import os
import shutil
import socket
from pathlib import Path

import child_process
import command_line
import hostile_photos
import pytest
import world as worlds
from tally import Tally, scaled

import show_attend_tell as sat

SECONDS = 120  # a folder that takes longer counts as hanging
CHUNK = 40  # photos in a folder
DAMAGED = 330


def _caption(world, folder: Path, out: Path) -> command_line.Done:
    arguments = ["caption", "--model", str(world.model), "--out", str(out), str(folder)]
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


def test_photos_captioned_one_by_one(world, tmp_path):
    tally = Tally("hostile photos, sat.load", scaled(500), 30)
    photos, required = hostile_photos.corpus(scaled(DAMAGED))
    model = sat.load(str(world.model))
    folder = tmp_path / "photos"
    _write(folder, photos)
    model.caption(world.photos / worlds.NAMES[0])  # compiles
    watch = command_line.watch
    for name in tally.within_time(photos):
        path, outcome, signature = folder / os.fsdecode(name), "handled", ""
        streams = io.StringIO(), io.StringIO()
        watch.start(tmp_path)
        try:
            with command_line.as_in_a_shell(*streams), command_line.time_limit(60):
                model.caption(path)
        except command_line.HangError as error:
            outcome, signature = "failed", "hang: " + command_line.signature_of(error)
        except Exception as error:
            own = type(error).__module__.startswith("show_attend_tell.")
            outcome = "refused" if own else "failed"
            if not own:
                signature = command_line.signature_of(error)
            elif name in required:
                reason = command_line.general(str(error).rpartition(": ")[2])
                outcome, signature = "failed", f"a whole photo refused: {reason}"
            elif "\n" in str(error).replace(str(path), ""):
                outcome, signature = "failed", "a refusal of more than one line"
        if strays := watch.stop():
            outcome, signature = "failed", "stray: " + command_line.general(strays[0])
        tally.count(f"sat.load(...).caption({os.fsdecode(name)!r})", outcome, signature)


def test_photos_captioned_from_folders(world, tmp_path):
    tally = Tally("hostile photos, folders", scaled(500), 50)
    photos, required = hostile_photos.corpus(scaled(DAMAGED))
    names = sorted(photos)
    chunks = [names[k : k + CHUNK] for k in range(0, len(names), CHUNK)]
    for number, chunk in enumerate(tally.within_time(chunks)):
        part = {name: photos[name] for name in chunk}
        _count_folder(tally, world, tmp_path / f"part-{number}", part, required)
        world.mark.unlink(missing_ok=True)


@pytest.mark.parametrize("form", ["csv", "html", "json", "page", "figures"])
def test_hostile_names_in_every_form_of_output(world, tmp_path, form):
    tally = Tally(f"hostile names, {form}", 2, 12)
    folder = tmp_path / "photos"
    photos = dict(list(hostile_photos.named())[:: 6 if form == "figures" else 1])
    _write(folder, photos)
    arguments = ["caption", "--model", str(world.model), str(folder)]
    options = {
        "csv": ["--out", str(tmp_path / "o.csv")],
        "html": ["--out", str(tmp_path / "o.html")],
        "json": ["--json"],
        "page": ["--html", str(tmp_path / "p.html")],
        "figures": ["--attention", str(tmp_path / "drawn"), "--format", "png"],
    }
    for attempt in ("first", "second"):
        done = command_line.run([*arguments, *options[form]], tmp_path, SECONDS)
        case = f"caption {' '.join(options[form])}, {attempt} run"
        tally.count(case, *command_line.judge(done, refused="refused"))
    tally.finish()


def _special_folders(world, root: Path):
    """Yield descriptions of folders of two photos and an entry that is no file."""
    folder = root / "photos"
    good = [world.photos / name for name in worlds.NAMES[:2]]

    def fresh(what: str) -> tuple[str, Path]:
        child_process.remove(folder)
        folder.mkdir()
        for path in good:
            shutil.copy(path, folder)
        return what, folder

    for name in ("entry.jpg", "entry"):
        for what, make in child_process.special_entries(name, good[0]):
            case = fresh(what)
            (root / "fifo").unlink(missing_ok=True)
            make(folder)
            yield case
    case = fresh("a socket")
    home = os.getcwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.jpg")
    os.chdir(home)
    yield case
    case = fresh("two folders linked to each other")
    for one, other in (("a", "b"), ("b", "a")):
        (folder / one).mkdir()
        (folder / one / "link").symlink_to(f"../{other}")
    yield case
    case = fresh("1,200 nested folders")
    child_process.nest(folder, 1200)
    yield case
    case = fresh("a folder that cannot be read")
    (folder / "secret").mkdir(mode=0)
    yield case
    for suffix in (".heic", ".heif", ".avif"):
        case = fresh(f"a photo of the suffix {suffix}")
        (folder / f"photo{suffix}").write_bytes(
            worlds.photo_bytes(1, "AVIF")
            if suffix == ".avif"
            else b"\0\0\0\x18ftypheic"
        )
        yield case


def test_special_files_stop_no_folder(world, tmp_path):
    """Both photos beside the entry must be captioned, whatever the entry is."""
    tally = Tally("special files in folders", 31, 45)
    out = tmp_path / "o.jsonl"
    for what, folder in tally.within_time(_special_folders(world, tmp_path)):
        out.unlink(missing_ok=True)
        arguments = ["caption", "--model", str(world.model), "--out", str(out)]
        done = command_line.run([*arguments, str(folder)], tmp_path, 90)
        kept = len(_paths_of(out) & {name.encode() for name in worlds.NAMES[:2]})
        outcome, signature = command_line.judge(done)
        silent = "suffix" in what and ".avif" not in what and "photo.h" not in done.err
        if not done.signature and not done.strays:
            outcome, signature = ("refused" if done.code else "handled"), ""
            if kept < 2:
                shown = command_line.general(done.err.strip()[-200:])
                outcome, signature = "failed", f"photos lost: {shown}"
            elif silent:
                outcome, signature = "failed", "a photo skipped without a line"
        tally.count(f"caption --out, {what}", outcome, signature)
    child_process.remove(tmp_path / "photos")
    tally.finish()


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
