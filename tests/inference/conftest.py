"""Share one folder of photos among all tests, and run the verb ``caption``."""

from functools import partial

import pytest
from PIL import Image
from shell import exit_code
from tiny_pipeline import photo_bytes, photo_image


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
    names = ("b.JPG", "a.png", "nested/deeper/c.webp", "nested/a.tif", "d.Gif")
    for seed, name in enumerate(names):
        photo_image(seed, (48, 40)).save(folder / name)
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
        code = exit_code("caption", *arguments)
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return command


@pytest.fixture
def run(command, shared_load, pipeline):
    """Run the verb with the shared pipeline."""
    return partial(command, "--model", pipeline.file)
