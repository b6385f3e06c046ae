"""The wheel, installed without the checkout, captions a photo."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tiny_pipeline import photo_bytes, tiny_keras_pipeline

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 45_000_000
MAX_INSTALLED = 400_000_000
README = (ROOT / "README.md").read_text(encoding="utf-8")
COPIED = (
    *("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"),
    *("show_attend_tell", "data_prep", "experiments"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of a copy of the checkout, in which a build leaves no files."""
    folder = tmp_path_factory.mktemp("wheel")
    ignore = shutil.ignore_patterns("__pycache__", "runs", "*.egg-info")
    for name in COPIED:
        copy = folder / "source" / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy, ignore=ignore)
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), "."]
    subprocess.run(command, cwd=folder / "source", check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, which shares the other installed packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    inside = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-index", "--target", inside, str(wheel)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    # A folder in a .pth file brings its packages, but not the .pth files in it, by
    # which the checkout is installed.
    packages = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    (Path(inside) / "shared.pth").write_text("\n".join(packages))
    return folder


def run(installed, *arguments, cwd) -> subprocess.CompletedProcess:
    hidden = ("PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    command = [str(installed / "bin" / "python"), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_wheel_is_small_and_complete(wheel):
    assert wheel.stat().st_size < MAX_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    files = [p for p in (ROOT / "show_attend_tell").rglob("*") if p.is_file()]
    files += (ROOT / "data_prep" / "scenes" / "photos").iterdir()
    kept = [p for p in files if "__pycache__" not in p.parts]
    wanted = {p.relative_to(ROOT).as_posix() for p in kept}
    assert wanted <= set(names)
    assert "show_attend_tell/experiments/flickr8k_soft.toml" in names
    assert not [name for name in names if name.startswith("tests/")]


@pytest.mark.slow
def test_the_installed_wheel_captions_a_photo_without_the_checkout(installed, tmp_path):
    (tmp_path / "a.png").write_bytes(photo_bytes(1, size=(60, 40)))
    where = "import show_attend_tell, data_prep; print(show_attend_tell.__file__)"
    done = run(installed, "-c", where, cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed), done.stderr
    model = tiny_keras_pipeline()
    arguments = ["-m", "show_attend_tell", "caption", "--write-metadata", "--model"]
    # The model needs Keras, which a line says unless the engine is named.
    arguments += [str(model.file), "--engine", "keras"]
    done = run(installed, *arguments, "a.png", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "metadata: 1 caption written\n")
    sentence = model.caption(tmp_path / "a.png").sentence
    assert done.stdout == f"a.png: {sentence}\n"
    assert (tmp_path / "a.png.xmp").exists()
    done = run(installed, *"-m show_attend_tell train -e x".split(), cwd=tmp_path)
    assert "flickr8k_soft" in done.stderr


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13", "3.14"])
def light(wheel, tmp_path_factory, request) -> Path:
    """An environment with the wheel and what it requires, without the extras."""
    folder = tmp_path_factory.mktemp("light")
    name = f"python{request.param}"
    command = [shutil.which(name) or "false", "-m", "venv", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{name} does not run here")
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True)
    return folder


@pytest.mark.network
def test_the_first_screen_of_readme_needs_no_keras(light):
    python = ("-c", re.search(r"```python\n(.*?)```", README, re.DOTALL)[1])
    command = re.search(r"^    show-attend-tell (caption .*)$", README, re.MULTILINE)[1]
    verb = ("-m", "show_attend_tell", *command.split())
    printed = [m.replace("\n", " ") for m in re.findall(r"prints `([^`]+)`", README)]
    for arguments, expected in zip((verb, python), printed, strict=True):
        done = run(light, *arguments, cwd=ROOT)
        assert (done.stdout.replace("\n", " ").strip(), done.stderr) == (expected, "")
    done = run(light, "-m", "show_attend_tell", "train", "-e", "scenes", cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'show-attend-tell[train]'" in done.stderr
    files = [file for file in light.rglob("*") if file.is_file()]
    assert not [file for file in files if file.match("tensorflow/__init__.py")]
    assert sum(file.stat().st_size for file in files) < MAX_INSTALLED
