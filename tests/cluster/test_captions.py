"""Shards equal the captions of one machine, whichever process is killed."""

import contextlib
import json
import logging
from pathlib import Path

import pytest
from PIL import Image
from shell import exit_code
from tiny_pipeline import tiny_pipeline
from tiny_pipeline import write_photos as write_files

from show_attend_tell.cluster import captions
from show_attend_tell.cluster.captions import caption_on_cluster, shard_writer
from show_attend_tell.data.manifest import Photo, write_manifest
from show_attend_tell.inference.batch import BatchReport, caption_into_file, made_by
from show_attend_tell.inference.journal import FIELDS, row_line
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import LowConfidence
from show_attend_tell.runtime.errors import CaptionError

CHUNK = 16
PHOTOS = 10 * CHUNK - 3
BROKEN = "0020.jpg"


class Here:
    """A cluster in this process, which finishes items in reverse order."""

    interrupted_after = None

    def run(self, job, arguments, items, workers):
        write = job(*arguments)
        for count, item in enumerate(reversed(list(items))):
            if count == self.interrupted_after:
                raise KeyboardInterrupt
            yield item, write(item.payload)


@pytest.fixture
def here(monkeypatch):
    here = Here()
    nullcontext = contextlib.nullcontext
    monkeypatch.setattr(captions, "connected", lambda address: nullcontext(here))
    monkeypatch.setattr(captions, "SHARD_PHOTOS", CHUNK)
    monkeypatch.setattr(captions, "load_requested", lambda *_: tiny_pipeline())
    return here


def write_photos(folder: Path, count: int, side: int) -> Path:
    names = [f"{number:04d}.jpg" for number in range(count)]
    write_files(folder, names, side, BROKEN)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return write_photos(tmp_path_factory.mktemp("few") / "photos", 45, 40)


def run(photos, out, choices=None, address="auto", **options):
    request = CaptionRequest((tiny_pipeline().file,), **(choices or {}))
    report, _ = caption_on_cluster(address, request, [photos], out, **options)
    return report


def lines(out: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(out.glob("captions-*.jsonl")))


def alone(photos: Path, out: Path) -> bytes:
    """Return the captions of one machine, without what recognises their photos."""
    caption_into_file(tiny_pipeline(), [photos], out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return b"".join(row_line({k: row[k] for k in FIELDS}).encode() for row in rows)


def test_shards_together_are_the_file_of_one_machine(here, photos, tmp_path):
    report = run(photos, tmp_path / "out")
    assert (report.written, report.present) == (44, 0)
    assert [failure.path.name for failure in report.failures] == [BROKEN]
    assert lines(tmp_path / "out") == alone(photos, tmp_path / "one.jsonl")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert index["captions"] == 44
    assert [shard["rows"] for shard in index["shards"]] == [16, 15, 13]
    assert not list((tmp_path / "out").glob(".writing-*"))


def test_an_interrupted_run_resumes_to_the_same_bytes(here, photos, tmp_path):
    here.interrupted_after = 2
    with pytest.raises(KeyboardInterrupt):
        run(photos, tmp_path / "out")
    assert not (tmp_path / "out" / "index.json").exists()
    here.interrupted_after = None
    report = run(photos, tmp_path / "out")
    assert (report.written, report.present) == (16, 28)
    assert lines(tmp_path / "out") == alone(photos, tmp_path / "one.jsonl")
    again = run(photos, tmp_path / "out")
    assert (again.written, again.present, len(again.failures)) == (0, 44, 1)


def test_new_photos_are_captioned_once_and_no_other_again(here, tmp_path):
    photos, out = write_photos(tmp_path / "photos", 25, 40), tmp_path / "out"
    run(photos, out)
    Image.new("RGB", (30, 20), "red").save(photos / "0000-new.jpg")
    Image.new("RGB", (30, 20), "red").save(photos / BROKEN)
    report = run(photos, out)
    assert (report.written, report.present, report.failures) == (2, 24, ())
    rows = [
        row
        for file in out.glob("captions-*")
        for row in captions_of(file)
        if row["made_by"].startswith("model.safetensors")
    ]
    assert len(rows) == 26
    assert {row["path"] for row in rows} == set(map(str, photos.iterdir()))


def captions_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_other_settings_other_files_and_a_damaged_shard_are_refused(
    here, photos, tmp_path
):
    run(photos, tmp_path / "out")
    with pytest.raises(CaptionError, match=r"beam 1.*Received: .*beam 3"):
        run(photos, tmp_path / "out", {"beam": 1})
    with pytest.raises(CaptionError, match="must be empty, or begun by this"):
        run(photos, photos)
    assert not (photos / ".lock").exists()
    with pytest.raises(CaptionError, match="must be a folder"):
        run(photos, photos / "0001.jpg")
    min((tmp_path / "out").glob("captions-*")).write_bytes(b"[]\n")
    with pytest.raises(CaptionError, match="captions-000000.*cannot be read"):
        run(photos, tmp_path / "out")


def test_a_manifest_names_the_photos(here, photos, tmp_path):
    named = [photos / "0003.jpg", photos / "0001.jpg"]
    rows = [Photo(path.name, path, "test", ("a",)) for path in named]
    write_manifest(tmp_path / "manifest.jsonl", rows)
    run(tmp_path / "manifest.jsonl", tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("captions-*")
    assert [row["path"] for row in captions_of(shard)] == list(map(str, named))


def test_a_worker_with_another_model_or_encoder_refuses_to_work(here):
    pipeline = tiny_pipeline()
    request, encoder = CaptionRequest((pipeline.file,)), pipeline.encoder.identity()
    made = made_by(pipeline, request)
    shard_writer(request, made, encoder, 9)
    other = {**encoder, "weights_digest": "0" * 64}
    with pytest.raises(CaptionError, match=r"must be the driver's.*weights_digest"):
        shard_writer(request, made, other, 9)
    with pytest.raises(CaptionError, match="instead of another model"):
        shard_writer(request, "another model", encoder, 9)


def test_the_report_counts_and_names_what_was_left_out(tmp_path):
    failures = (Failure(tmp_path, "broken"), LowConfidence(tmp_path, "left out"))
    assert BatchReport(tmp_path, 7200, 5, failures).summary() == (
        f"{tmp_path}: 7,200 captions written, 5 already present, 1 left out for low "
        "confidence, 1 photo skipped"
    )


def test_the_verb_prints_counts_and_unreadable_photos(here, photos, tmp_path, capsys):
    options = "--cluster", "auto", "--out", tmp_path / "out"
    model = tiny_pipeline().file
    for count, lines in ((44, 2), (0, 1)):  # no rate of nothing
        assert exit_code("caption", "--model", model, photos, *options) == 1
        out, err = capsys.readouterr()
        assert f": {count} captions written, " in out
        assert (
            out.count("\n")
            == lines
            == 1 + out.count(" photos/s, the start of the workers included\n")
        )
        assert f"{BROKEN}: cannot be read as a photo" in err


# On a real cluster.

CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths}
from show_attend_tell.cluster import captions
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.runtime.keras_startup import start_keras
start_keras()
captions.SHARD_PHOTOS = {chunk}
model, photos, out, address = sys.argv[1:]
request = CaptionRequest((Path(model),))
captions.caption_on_cluster(address, request, [photos], out, workers=1)
"""


@pytest.mark.cluster
def test_a_killed_driver_worker_and_node_change_no_byte(
    tmp_path, nodes, caplog, monkeypatch
):
    from local_cluster import kill_driver_worker_and_node

    monkeypatch.setattr(captions, "SHARD_PHOTOS", CHUNK)
    photos = write_photos(tmp_path / "photos", PHOTOS, 700)  # milliseconds to decode
    out, model = tmp_path / "out", tiny_pipeline().file
    script = CHILD.format(paths=[str(Path(__file__).parents[2])], chunk=CHUNK)
    with caplog.at_level(logging.WARNING):
        report = kill_driver_worker_and_node(
            nodes,
            ["-c", script, model, photos, out, nodes.address],
            out / "captions-*",
            lambda: run(photos, out, address=nodes.address, workers=2),
        )
    assert "a worker has ended" in caplog.text
    assert report.present >= CHUNK
    assert report.written + report.present == PHOTOS - 1
    assert [failure.path.name for failure in report.failures] == [BROKEN]
    assert lines(out) == alone(photos, tmp_path / "one.jsonl")
