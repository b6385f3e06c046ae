"""A tiny data set taken through all stages by the command line."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import command_line
import tiny_pipeline
from data_prep_files import make_zip

NAMES = [f"photo{k:02d}.jpg" for k in range(16)]
COLOURS, SHAPES = ("red", "green", "blue"), ("circle", "square", "star")
SETTINGS = """[data]
name = "tiny"
source = "flickr8k"
[encoder]
network = "SceneNet"
layer = "annotations"
weights = "none"
image_size = 32
[model]
embedding_width = 6
lstm_width = 8
attention_width = 7
dropout = 0.2
initializer = "glorot"
[training]
epochs = 2
batch_size = 8
learning_rate = 0.02
checkpoint_every = 1
jit_compile = false
[decoding]
beam = 2
validation_beam = 1
max_words = 6
batch_size = 8
"""
# Pillow starts the program `gs` for EPS files; this one leaves a mark instead.
_GHOSTSCRIPT = '#!/bin/sh\necho started >> "{mark}"\necho 10.0\n'


class World:
    """Paths of the finished stages; tests copy what they change.

    Attributes:
        root: folder of everything below.
        settings: the experiment's TOML file.
        data: folder of the two archives.
        work: folder of prepared data.
        prepared: folder of manifest, vocabulary and features in it.
        features: the feature file.
        photos: folder of unpacked photos.
        runs: folder of training runs.
        run: the run folder.
        model: the model file.
        mark: exists once Ghostscript was started.
    """

    def __init__(self, root: Path, mark: Path):
        self.root, self.settings, self.mark = root, root / "tiny.toml", mark
        self.data, self.work, self.runs = (root / n for n in ("data", "work", "runs"))
        self.prepared, self.run = self.work / "tiny", self.runs / "tiny"
        self.features = self.prepared / "features-SceneNet-annotations.h5"
        self.photos, self.model = (
            self.prepared / "photos",
            self.run / "model.safetensors",
        )

    def stage(self, verb: str, folder: Path, *more: str) -> list[str]:
        """Return the arguments of a stage whose work and runs are in `folder`."""
        arguments = [verb, "--experiment", str(self.settings)]
        arguments += ["--work", str(folder / "work")]
        if verb == "prepare":
            arguments += ["--data", str(self.data)]
        if verb in ("train", "eval"):
            arguments += ["--runs", str(folder / "runs")]
        if verb == "eval":
            arguments += ["--split", "val", "--tokenizer", "simple"]
        return [*arguments, *more]


def photo_bytes(seed: int, form: str = "JPEG", size=(70, 50), **options) -> bytes:
    """Return the bytes of a small photo, by default a JPEG."""
    return tiny_pipeline.photo_bytes(seed, form, size, **options)


def captions_of(names) -> str:
    """Return the token file of some photos."""
    return "".join(
        f"{name}#{i}\tA {COLOURS[k % 3]} {SHAPES[k // 3 % 3]} {word} it .\n"
        for k, name in enumerate(names)
        for i, word in enumerate(("below", "above"))
    )


def texts() -> dict[str, str]:
    """Return the text files of the data set: name -> content."""
    return {
        "Flickr8k.token.txt": captions_of(NAMES),
        "Flickr_8k.trainImages.txt": "\n".join(NAMES[:11]) + "\n",
        "Flickr_8k.devImages.txt": "\n".join(NAMES[11:14]) + "\n",
        "Flickr_8k.testImages.txt": "\n".join(NAMES[14:]) + "\n",
    }


def write_data(folder: Path) -> None:
    """Write the two archives of the data set."""
    folder.mkdir(parents=True)
    photos = {f"Flicker8k_Dataset/{n}": photo_bytes(k) for k, n in enumerate(NAMES)}
    make_zip(folder / "Flickr8k_Dataset.zip", photos)
    make_zip(folder / "Flickr8k_text.zip", texts())


def enclose(root: Path) -> Path:
    """Keep this process' temporary files, home and programs in `root`.

    Returns:
        The file that exists once Ghostscript was started.
    """
    for name in ("tmp", "home", "bin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    mark, program = root / "ghostscript-started", root / "bin" / "gs"
    program.write_text(_GHOSTSCRIPT.format(mark=mark))
    program.chmod(0o755)
    # Without Java, METEOR is left out, which takes seconds to start.
    os.environ |= {"PATH": str(root / "bin"), "HOME": str(root / "home")}
    os.environ |= {"TMPDIR": str(root / "tmp"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    tempfile.tempdir = str(root / "tmp")
    import matplotlib  # in this home

    # It makes its folders once, before commands are watched.
    matplotlib.get_configdir(), matplotlib.get_cachedir()
    return mark


def make(root: Path) -> World:
    """Run all stages in a folder, unless an earlier call did."""
    world = World(root, enclose(root.parent))
    if (root / "finished").exists():
        return world
    shutil.rmtree(root, ignore_errors=True)
    write_data(world.data)
    world.settings.write_text(SETTINGS)
    for verb in ("prepare", "features", "train", "eval"):
        done = command_line.run(world.stage(verb, root), root.parent, seconds=300)
        assert done.code == 0, done
    (root / "finished").touch()
    return world
