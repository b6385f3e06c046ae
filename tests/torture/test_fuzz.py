"""`make fuzz`: edit valid files at random and read them; keep what fails as a case.

Each reader must return or raise its own error, within seconds. Hypothesis shrinks what
fails to the fewest edits; the file is then written to `fuzz_cases/` beside this module,
and every run reads the files there first.
"""

import contextlib
import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import command_line
import hypothesis
import pytest
import requests
import served
import server_process
from hostile_photos import FORMATS
from hypothesis import strategies as st
from made_up_captions import GRID
from tensor_files import joined, split
from tiny_pipeline import tiny_pipeline
from world import photo_bytes
from zip_members import unzipped, zipped

from data_prep.data_folder import DataFolder
from data_prep.sources.published import read_flickr8k
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.conversion.convert import convert
from show_attend_tell.data.manifest import read_manifest
from show_attend_tell.data.preprocessing import load_photo, to_square
from show_attend_tell.evaluation.coco_results import read_captions
from show_attend_tell.inference.journal import Journal
from show_attend_tell.models.pretrained import SHIPPED
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.reference.reranker import load_reranker
from show_attend_tell.runtime.errors import ShowAttendTellError

MINUTES = float(os.environ.get("FUZZ_MINUTES", 0.5))
EXAMPLES = 100  # of a target, before the next has its turn
SECONDS = 20  # an input that takes longer counts as hanging
CASES = Path(__file__).with_name("fuzz_cases")
WORDS = (b"", b"\0", b"\xff\xff\xff\xff", b"9" * 400, b'"', b"[" * 2000, b"{}", b"nan")


class Target(NamedTuple):
    """A reader, the content of valid files, and the name of its file."""

    seeds: list[bytes]
    read: Callable[[Path], object]
    name: str = "input"


def _edits():
    place, size = st.floats(0, 1), st.integers(0, 64)
    inserted = st.one_of(st.sampled_from(WORDS), st.binary(max_size=8))
    return st.lists(st.tuples(place, size, inserted), min_size=1, max_size=4)


def _edited(content: bytes, edits: list) -> bytes:
    """Replace `size` bytes at a place, a fraction of the content, by others."""
    for place, size, inserted in edits:
        at = round(place * len(content))
        content = content[:at] + inserted + content[at + size :]
    return content


def _inside(content: bytes, edits: list) -> bytes:
    """Edit the header of tensors, whose length stays right, or an archive's member."""
    if not content.startswith(b"PK"):
        header, data = split(content)
        return joined(_edited(json.dumps(header).encode(), edits), data)
    files = unzipped(content)
    name = sorted(files)[len(edits) % len(files)]
    return zipped(files | {name: _edited(files[name], edits)}, zipfile.ZIP_DEFLATED)


def _targets(world, folder: Path, address: str) -> dict[str, Target]:
    tokens = (world.data / "Flickr8k_text.zip").read_bytes()
    run, prepared = world.run, world.prepared

    def photo(path):
        to_square(load_photo(path), 32, "squash")

    def rows(path):
        with Journal(path, "model"):
            pass

    def texts(path):
        (path.parent / "data").mkdir(exist_ok=True)
        name = path.parent / "data" / "Flickr8k_text.zip"
        path.replace(name)
        read_flickr8k(DataFolder(path.parent / "data", path.parent / "unpacked"))

    def body(path):
        kind = {"Content-Type": "multipart/form-data; boundary=torture"}
        reply = requests.post(
            f"{address}/caption", path.read_bytes(), headers=kind, timeout=SECONDS
        )
        assert reply.status_code in (200, 400, 413, 415, 422), reply.text
        assert reply.status_code == 200 or reply.json()["error"]

    row = {"path": "a.jpg", "made_by": "model", "caption": "a", "grid": list(GRID)}
    form = server_process.form(photo_bytes(1), b"a.jpg", {"beam": 2, "method": "beam"})
    load_captioner(world.model).save(folder / "old.keras")
    models = [world.model.read_bytes(), SHIPPED.read_bytes()]
    return {
        "photos": Target([photo_bytes(1, f) for f in FORMATS], photo),
        "models": Target(models, read_captioner, "model.safetensors"),
        "old models": Target(
            [(folder / "old.keras").read_bytes()], _convert, "model.keras"
        ),
        "rerankers": Target([SHIPPED.read_bytes()], load_reranker, "model.safetensors"),
        "settings": Target(
            [world.settings.read_bytes()],
            lambda path: load_experiment(str(path)),
            "input.toml",
        ),
        "manifests": Target(
            [(prepared / "manifest.jsonl").read_bytes()], read_manifest
        ),
        "results": Target([(run / "captions-val.json").read_bytes()], read_captions),
        "rows": Target([json.dumps(row).encode() + b"\n"], rows, "rows.jsonl"),
        "captions": Target([tokens], texts),
        "bodies": Target([form], body),
    }


def _convert(path: Path):
    return convert(path, overwrite=True)


def _targets_of_plugins(folder: Path) -> dict[str, Target]:
    """Return the models of plug-ins, where the package has them."""
    try:
        from tiny_digits import tiny_ram
    except ModuleNotFoundError:
        return {}
    from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS

    tiny_ram().save(folder / "ram.safetensors")
    content = (folder / "ram.safetensors").read_bytes()
    return {"plug-ins": Target([content], CLASSIFIERS.load, "model.safetensors")}


@pytest.fixture(scope="module")
def targets(world, tmp_path_factory) -> Iterator[dict[str, Target]]:
    with served.serving({"tiny": tiny_pipeline()}) as address:
        folder = tmp_path_factory.mktemp("seeds")
        yield _targets(world, folder, address) | _targets_of_plugins(folder)


def _fault(target: Target, content: bytes, folder: Path) -> BaseException | None:
    """Return what a reader raises that is not one of the package's errors."""
    path = folder / target.name
    path.write_bytes(content)
    try:
        with command_line.time_limit(SECONDS):
            target.read(path)
    except (ShowAttendTellError, OSError):
        return None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    return None


def _fuzz(
    target: Target, folder: Path, seed: int
) -> tuple[bytes, BaseException] | None:
    """Return the smallest input that fails among some, and its error."""
    failed = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(  # numbers, as Hypothesis warns of long arguments
        st.sampled_from(range(len(target.seeds))), _edits(), st.booleans()
    )
    def test(number, edits, inside):
        content = target.seeds[number]
        has_parts = content.startswith(b"PK") or content[8:9] == b"{"
        content = (_inside if inside and has_parts else _edited)(content, edits)
        if (error := _fault(target, content, folder)) is not None:
            failed.append((content, error))
            raise AssertionError(command_line.signature_of(error))

    with contextlib.suppress(AssertionError):
        test()
    return failed[-1] if failed else None


def test_the_smallest_input_that_fails_is_returned(tmp_path):
    def read(path):
        if len(path.read_bytes()) > 200_000:
            raise KeyError("found")

    content, error = _fuzz(Target([bytes(200_000)], read), tmp_path, 1)
    assert isinstance(error, KeyError)
    assert 200_000 < len(content) < 202_500


@pytest.mark.parametrize(
    "case", sorted(CASES.glob("*.bin")), ids=lambda case: case.stem
)
def test_inputs_that_once_failed_are_refused_or_read(targets, tmp_path, case):
    target = targets[case.stem.partition("-")[0]]
    assert _fault(target, case.read_bytes(), tmp_path) is None


# Starlette drops the files of a malformed form without closing them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_edited_files_are_refused_or_read(targets, tmp_path):
    end, found, seed = time.monotonic() + 60 * MINUTES, {}, time.time_ns()
    counts = dict.fromkeys(targets, 0)
    while True:
        for name, target in targets.items():
            if time.monotonic() > end:
                print(f"\nrounds of {EXAMPLES} inputs: {counts}")
                assert not found, found
                return
            if failure := _fuzz(target, tmp_path, seed := seed + 1):
                content, error = failure
                signature = command_line.signature_of(error)
                if signature not in found:
                    CASES.mkdir(exist_ok=True)
                    digest = hashlib.sha256(content).hexdigest()[:8]
                    (CASES / f"{name}-{digest}.bin").write_bytes(content)
                    found[signature] = f"{name}-{digest}.bin"
            counts[name] += 1
