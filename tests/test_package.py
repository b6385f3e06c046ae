"""The package installs all of its folders and needs, and starts without heavy ones."""

import ast
import configparser
import re
import sys
from importlib import metadata
from pathlib import Path

from new_process import python

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("show_attend_tell", "data_prep")
PHOTO = ROOT / "docs" / "images" / "sheep.jpg"


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def source_files() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


CAPTION = """
import sys
from show_attend_tell.cli.main import main
try:
    main(["caption", sys.argv[1]])
except SystemExit:
    pass
print(*{name.partition(".")[0] for name in sys.modules})
"""
HEAVY = {
    *("fastapi", "h5py", "hdf5plugin", "jax", "keras", "matplotlib", "nltk", "onnx"),
    *("pycocoevalcap", "ray", "requests", "scipy", "starlette", "tensorboard"),
    *("tensorflow", "torch", "uvicorn", "data_prep"),
}


def test_a_cold_caption_loads_no_heavy_package():
    done = python("-c", CAPTION, PHOTO)
    assert done.returncode == 0, done.stderr
    caption, loaded = done.stdout.splitlines()
    assert "sheep" in caption
    assert "numpy" in loaded.split()
    assert not HEAVY & set(loaded.split())


def test_every_package_folder_is_installed():
    folders = {path.parent for path in source_files() if path.name == "__init__.py"}
    names = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    installed = set(setup_cfg()["options"]["packages"].split())
    assert names | {"show_attend_tell.experiments"} == installed


def imported_libraries() -> set[str]:
    """Return the libraries that any file imports, wherever in the file."""
    names = set()
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module)
    top_level = {name.partition(".")[0] for name in names}
    return top_level - {*sys.stdlib_module_names, *PACKAGES}


def normalised(name: str) -> str:
    return name.lower().replace("_", "-")


def test_jax_takes_the_place_of_tensorflow_alone():
    extras = setup_cfg()["options.extras_require"]
    jax, train = (
        {line for line in extras[name].split("\n") if line} for name in ("jax", "train")
    )
    assert {re.match(r"\w+", line)[0] for line in jax ^ train} == {"jax", "tensorflow"}


def test_every_imported_library_is_a_declared_dependency():
    setup = setup_cfg()
    lines = setup["options"]["install_requires"]
    for extra in ("cluster", "heic", "jax", "onnx", "train", "words"):
        lines += setup["options.extras_require"][extra]
    declared = {normalised(re.match(r"[\w-]+", line)[0]) for line in lines.split()}
    distributions = metadata.packages_distributions()
    for library in imported_libraries():
        # A library of an extra that is not installed is named as its distribution.
        homes = distributions.get(library, [library])
        assert {normalised(home) for home in homes} & declared, library
