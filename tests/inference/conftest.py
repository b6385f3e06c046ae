"""Share one compiled pipeline and one folder of photos among all tests."""

from functools import partial

import numpy as np
import pytest
from PIL import Image
from tiny_pipeline import photo_bytes, tiny_pipeline

from show_attend_tell.cli import main as cli


@pytest.fixture(scope="session")
def pipeline():
    """The shared pipeline; no test may change it."""
    return tiny_pipeline()


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """The path of one photo."""
    path = tmp_path_factory.mktemp("one") / "a photo.png"
    path.write_bytes(photo_bytes(2, size=(60, 40)))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Nested photos of several formats, one of them damaged, and other files."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "nested" / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    rng = np.random.default_rng(5)
    for name in ("b.JPG", "a.png", "nested/deeper/c.webp", "nested/a.tif", "d.Gif"):
        pixels = rng.integers(0, 256, (5, 7, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((48, 40), Image.Resampling.NEAREST)
        picture.save(folder / name)
    (folder / "broken.jpeg").write_bytes(b"\xff\xd8\xff not really")
    (folder / "notes.txt").write_text("no photo")
    Image.new("RGB", (9, 9)).save(folder / ".hidden" / "h.png")
    Image.new("RGB", (9, 9)).save(folder / "._a.png")
    return folder


@pytest.fixture
def shared_load(monkeypatch, pipeline):
    """Make the command line use the shared pipeline instead of loading a model."""
    monkeypatch.setattr(
        "show_attend_tell.inference.pipeline.load",
        lambda model, weights, mirror=None, reranker=None, **_: pipeline,
    )


@pytest.fixture
def command(capsys):
    """Run the verb ``caption``; return exit status, lines of output, and errors."""

    def command(*arguments) -> tuple[int, list[str], str]:
        try:
            cli.main(["caption", *map(str, arguments)])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return command


@pytest.fixture
def run(command, shared_load, pipeline):
    """Run the verb with the shared pipeline."""
    return partial(command, "--model", pipeline.file)
