"""The verb ``draw``: a grid, an animation, and refused requests."""

import numpy as np
import pytest
from made_up_digits import drawing_experiment as experiment
from PIL import Image

from show_attend_tell.config.runs import MODEL
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.siblings.digits.draw.models import GENERATORS

pytestmark = pytest.mark.usefixtures("eager_models")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with an untrained model, whose windows are not all alike."""
    folder = tmp_path_factory.mktemp("run")
    model, rng = GENERATORS.build(experiment()), np.random.default_rng(0)
    for layer in (model.to_write, model.to_patch):
        layer.kernel.assign(rng.normal(0, 0.5, layer.kernel.shape))
    (folder / "tiny").mkdir()
    model.save(folder / "tiny" / MODEL)
    (folder / "tiny.toml").write_text(experiment_to_toml(experiment()))
    return folder


@pytest.fixture
def draw(run, folder):
    """Return a function that runs the verb: the exit status and the last line."""

    def draw(*arguments):
        options = ("-e", folder / "tiny.toml", "--runs", folder)
        code, out, err = run("draw", *options, *arguments)
        return code, (out + err).strip().splitlines()[-1]

    return draw


def test_a_png_has_the_pictures_of_a_seed_in_a_grid(draw, folder, tmp_path):
    path, contents = tmp_path / "digits.png", []
    for seed in (1, 1, 2):
        options = ("--count", 9, "--seed", seed, "--out", path)
        assert draw(*options) == (
            0,
            f"9 pictures of {folder / 'tiny' / MODEL}: {path}",
        )
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] != contents[2]
    with Image.open(path) as image:
        assert image.size == (3 * 85 + 1, 3 * 85 + 1)
    options = ("--count", 3, "--columns", 100_000, "--scale", 1, "--out", path)
    assert draw(*options)[0] == 0
    with Image.open(path) as image:
        assert image.size == (3 * 29 + 1, 30)


def test_a_gif_shows_the_canvas_after_each_step_and_the_windows(draw, tmp_path):
    path = tmp_path / "digits.gif"
    assert draw("--count", 4, "--out", path)[0] == 0
    with Image.open(path) as image:
        frames = []
        for number in range(image.n_frames):
            image.seek(number)
            frames.append(np.asarray(image.convert("RGB")).astype(int))
    assert len(frames) == 4  # c_0, c_1 and c_2 with windows, and c_2
    coloured = [(frame[..., 0] - frame[..., 2] > 60).any() for frame in frames]
    assert coloured == [False, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--out", "digits.jpg"], 2, "or .gif. Received: 'digits.jpg'"),
        (["--count", "0", "--out", "a.png"], 2, "'--count'"),
        (["--count", "10001", "--out", "a.png"], 2, "'--count'"),
        (
            ["--count", "1000", "--columns", "1", "--out", "a.gif"],
            2,
            "a file of 86 x 85001 pixels, 4 frames: too large; lower them",
        ),
        (["--count", "10000", "--scale", "20", "--out", "a.png"], 2, "too large"),
        (["--name", "absent", "--out", "a.png"], 1, "no such model; train"),
        (["--set", "draw.read=9", "--out", "a.png"], 1, "with other settings"),
        (["--set", "draw.read=1", "--out", "a.png"], 1, "draw.read: "),
        (["-e", "ram_mnist", "--out", "a.png"], 2, "an experiment that generates"),
        (["-e", "scenes", "--out", "a.png"], 2, "whose task is 'caption'"),
    ],
)
def test_a_refused_request_is_one_line(
    draw, arguments, status, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, line = draw(*arguments)
    assert code == status
    assert words in line
    assert not list(tmp_path.iterdir())


def test_the_model_in_the_package_draws_where_no_experiment_is_named(tmp_path, run):
    path = tmp_path / "digits.png"
    _, out, _ = run("draw", "--count", 4, "--scale", 1, "--out", path)
    assert out == f"4 pictures of the model in the package: {path}\n"
    with Image.open(path) as image:
        assert image.size == (2 * 29 + 1, 2 * 29 + 1)
        # Digits: mostly background, and some ink in each of the four.
        grey = np.asarray(image.convert("L"), np.float32)
    parts = [grey[y : y + 28, x : x + 28] for y in (1, 30) for x in (1, 30)]
    assert all(0.03 < np.mean(part > 127) < 0.35 for part in parts)
