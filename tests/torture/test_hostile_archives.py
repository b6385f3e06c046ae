"""Damaged archives and caption files, taken through ``prepare``."""

import csv
import functools
import io
import json
import os
import random
import shutil
import zipfile
from pathlib import Path

import child_process
import command_line
import mutations
import pytest
import world as worlds
from artefacts import cell_damage, line_damage
from data_prep_files import coco_json, karpathy_json
from tally import Tally, scaled
from world import NAMES

SECONDS = 20  # a case that takes longer counts as hanging
LARGE = 1_500  # MB of text in one archive entry
ROOM = 1 << 30  # bytes of address space beyond what the process starts with


class Box:
    """A folder for one case, emptied before the next.

    Args:
        root: folder that nothing but ``case`` and the harness' own folders is in.
        world: the data set.
    """

    def __init__(self, root: Path, world: worlds.World):
        self.root, self.world = root, world
        self.case, self.data = root / "case", root / "case" / "data"

    def prepare(self, files: dict[str, bytes], *more: str) -> command_line.Done:
        """Run ``prepare`` on a data folder of these files."""
        shutil.rmtree(self.case, ignore_errors=True)
        self.data.mkdir(parents=True)
        for name, content in files.items():
            (self.data / name).write_bytes(content)
        arguments = self.world.stage("prepare", self.case, "--data", str(self.data))
        done = command_line.run([*arguments, *more], self.case, SECONDS)
        photos = self.case / "work" / "tiny" / "photos"
        done.strays += [
            f"left {path}"
            for path in self.case.rglob("*outside*")
            if path.parent not in (photos, self.data)
        ]
        return done


@pytest.fixture
def box(world, tmp_path) -> Box:
    return Box(tmp_path, world)


def _count(tally: Tally, case: str, done: command_line.Done) -> None:
    tally.count(f"prepare, {case}", *command_line.judge(done))


@pytest.fixture(scope="module")
def originals(world) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(world.data.iterdir())}


def test_damaged_archives_are_refused_or_prepared(box, originals):
    tally = Tally("damaged archives", scaled(2700), 60)
    rng = random.Random(14)
    kinds = [mutations.bytes_damaged, mutations.zip_fields_changed]
    kinds += [mutations.zip_repacked, mutations.zip_with_hostile_name]
    for number in tally.within_time(range(tally.planned)):
        name = rng.choice(sorted(originals))
        what, content = kinds[number % len(kinds)](originals[name], rng)
        done = box.prepare({**originals, name: content})
        _count(tally, f"{number}, {name}: {what}", done)


def _flickr(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    kinds = [
        ("a name of 300 letters", "x" * 300 + ".jpg#0\ta dog\n"),
        ("10^5 words", "photo00.jpg#0\t" + "dog " * 10**5 + "\n"),
        ("a number of 5,000 digits", f"photo00.jpg#{mutations.LONG_INTEGER}\ta dog\n"),
        ("a path", "../../outside.jpg#0\ta dog\n"),
        ("a NUL", "photo\0.jpg#0\ta d\0og\n"),
        ("line separators", "photo00.jpg#0\ta\x85dog\u2028cat\x1cbat\n"),
    ]
    what, line = rng.choice(kinds)
    lines = content.decode().splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines)), line)
    return what, "".join(lines).encode()


def _coco() -> dict[str, str]:
    caption, parts = ["A red circle."], {"train": NAMES[:11], "val": NAMES[11:]}
    rows = [(name, split, caption) for split in parts for name in parts[split]]
    return {"dataset_coco.json": karpathy_json(rows)} | {
        f"captions_{split}2014.json": coco_json(dict.fromkeys(names, caption))
        for split, names in parts.items()
    }


def _rows() -> tuple[str, str]:
    rows = [
        {"file": n, "caption": "A red circle.", "split": "val" if k > 10 else "train"}
        for k, n in enumerate(NAMES)
    ]
    buffer = io.StringIO()
    table = csv.DictWriter(buffer, ["file", "caption", "split"])
    table.writeheader()
    table.writerows(rows)
    return buffer.getvalue(), "".join(json.dumps(row) + "\n" for row in rows)


_ODD_CELLS = (
    *("x" * 300 + ".jpg", "dog " * 10**5, "", '"', '"a\nb"', "../../outside.jpg"),
    *("/etc/passwd", "a\rb", "\0", "\ud800", ".", "/dev/zero", "photo00.jpg/a"),
)


def _damaged_texts(rng: random.Random):
    """Yield source, description, name, content and the whole files of the source."""
    coco, (table, rows) = _coco(), _rows()
    flickr = worlds.texts()
    sources = {
        "flickr8k": ({k: v.encode() for k, v in flickr.items()}, _flickr),
        "coco": ({k: v.encode() for k, v in coco.items()}, mutations.json_changed),
        "folder": (
            {"captions.csv": table.encode()},
            functools.partial(cell_damage, odd_values=_ODD_CELLS),
        ),
        "folder, rows": ({"captions.jsonl": rows.encode()}, line_damage),
    }
    for source, (files, _) in sources.items():
        for name in files:
            for what, content in mutations.hostile_texts():
                yield source, what, name, content, files
    while True:
        source = rng.choice(list(sources))
        files, damage = sources[source]
        name = rng.choice(list(files))
        if rng.random() < 0.35:
            damage = mutations.bytes_damaged
        what, content = damage(files[name], rng)
        yield source, what, name, content, files


def test_damaged_caption_files_are_refused_or_prepared(box, world):
    tally = Tally("damaged caption files", scaled(1300), 40)
    cases = _damaged_texts(random.Random(15))
    photos = {path.name: path.read_bytes() for path in sorted(world.photos.iterdir())}
    for number in tally.within_time(range(tally.planned)):
        source, what, name, content, files = next(cases)
        kind = source.split(",")[0]
        change = ["--set", f"data.source={kind}"]
        done = box.prepare({**photos, **files, name: content}, *change)
        _count(tally, f"{number}, {source}, {name}: {what}", done)


LARGE_ARCHIVES = {
    "a token file": ("Flickr8k_text.zip", "Flickr8k.token.txt", []),
    "a list": ("Flickr8k_text.zip", "Flickr_8k.trainImages.txt", []),
    "annotations": ("a.zip", "dataset_coco.json", ["--set", "data.source=coco"]),
}


@pytest.mark.parametrize("what", LARGE_ARCHIVES)
def test_a_small_archive_of_much_text_takes_little_memory(world, tmp_path, what):
    """The limit on memory is that of the process, so it runs in one of its own."""
    tally = Tally(f"huge entries, {what}", 1, 20)
    archive, entry, more = LARGE_ARCHIVES[what]
    data = tmp_path / "data"
    shutil.copytree(world.data, data)
    texts = {k: v for k, v in worlds.texts().items() if k != entry}
    for name, text in texts.items():
        (data / name).write_text(text)
    (data / archive).write_bytes(mutations.zip_of_zeros(entry, LARGE))
    arguments = world.stage("prepare", tmp_path, "--data", str(data), *more)
    done = child_process.run(arguments, tmp_path, memory=ROOM, seconds=120)
    _count(tally, f"{what} of {LARGE} MB", done)
    tally.finish()


def _special_folders(world, data: Path):
    """Yield descriptions, after making each kind of entry in a data folder."""
    photo = world.photos / NAMES[0]

    def fresh(what: str) -> str:
        child_process.remove(data)
        shutil.copytree(world.data, data)
        return what

    for name in ("Other.zip", "Flickr8k.token.txt", "Flickr_8k.devImages.txt", "x.jpg"):
        for what, make in child_process.special_entries(name, photo):
            fresh(what)
            (data.parent / "fifo").unlink(missing_ok=True)
            (data / name).unlink(missing_ok=True)
            make(data)
            yield what, []
    what = fresh("names that are not UTF-8")
    (data / os.fsdecode(b"caf\xe9.jpg")).write_bytes(photo.read_bytes())
    (data / os.fsdecode(b"caf\xe9.zip")).write_bytes(b"no archive")
    yield what, []
    what = fresh("1,200 nested folders")
    child_process.nest(data, 1200)
    yield what, []
    for name in ("captions.csv", "captions.jsonl"):
        what = fresh(f"a FIFO named {name}")
        os.mkfifo(data / name)
        yield what, ["--set", "data.source=folder"]
        what = fresh(f"{name} is /dev/zero")
        (data / name).symlink_to("/dev/zero")
        yield what, ["--set", "data.source=folder"]
    what = fresh("photos of latin-1 names, folder")
    (data / os.fsdecode(b"caf\xe9.jpg")).write_bytes(photo.read_bytes())
    shutil.copy(photo, data)
    text = (
        f"file,caption,split\n{photo.name},a red circle,train\ncaf\xe9.jpg,a cat,val\n"
    )
    (data / "captions.csv").write_bytes(text.encode("latin-1"))
    yield what, ["--set", "data.source=folder"]
    (data / "captions.csv").write_text(text)
    yield what + ", table in UTF-8", ["--set", "data.source=folder"]


def test_special_files_in_a_data_folder_stop_nothing(world, tmp_path):
    tally = Tally("special files in data folders", 60, 35)
    data = tmp_path / "data"
    for what, more in tally.within_time(_special_folders(world, data)):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        arguments = world.stage("prepare", tmp_path, "--data", str(data), *more)
        # /dev/zero is read until the memory or the time is used up.
        done = child_process.run(arguments, tmp_path, memory=ROOM, seconds=30)
        outcome, signature = command_line.judge(done)
        good = "to nothing" in what or "FIFO" in what or "nested" in what
        good = good and ("x.jpg" in what or "Other.zip" in what or "nested" in what)
        if outcome == "refused" and good:
            outcome = "failed"
            signature = "work lost: " + command_line.general(done.err.splitlines()[-1])
        tally.count(f"prepare, {what}: {done.err[-200:]!r}", outcome, signature)


def test_zip_of_zeros_is_a_sound_archive():
    content = mutations.zip_of_zeros("a.txt", 3)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("a.txt").file_size == 3 << 20
