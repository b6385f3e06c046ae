"""The arrows of the design: who may import whom, read from the source files."""

import ast
import configparser
import re
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "show_attend_tell"

# A room may import rooms to its left. Rooms separated by a comma do not import each
# other, except that config may import runtime.
ORDER = (
    "runtime, config < data < reference < models < inference, evaluation"
    " < training < siblings < deployment < cluster < cli"
)
FLOORS = [floor.split(", ") for floor in ORDER.split(" < ")]
FLOOR_OF = {name: level for level, names in enumerate(FLOORS) for name in names}
BESIDE_ALLOWED = {("config", "runtime")}
DATA_PREP_MAY_IMPORT = {"runtime", "config", "data", "reference", "models"}
MOST_ENTRIES = {"show_attend_tell": 14, "data": 14}
MOST_IN_A_ROOM = 18
HEAVY = {"tensorflow", "keras"}
BACKENDS = {"tensorflow", "jax", "torch"}


def source_files() -> list[Path]:
    """Every Python file of the two packages."""
    folders = (ROOT / PACKAGE, ROOT / "data_prep")
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def module_name(path: Path) -> str:
    """``data_prep/sources/__init__.py`` -> ``data_prep.sources``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in source_files()}
# The benchmarks may import the packages; they are not installed.
BENCHMARKS = {
    module_name(path): path for path in sorted((ROOT / "benchmarks").rglob("*.py"))
}
EVERY_MODULE = MODULES | BENCHMARKS


def base_of(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    """The absolute module that a ``from`` statement of module ``name`` names."""
    if not node.level:
        return node.module
    parts = name.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def imports(name: str, at_once: bool = False) -> set[str]:
    """Modules that module ``name`` imports anywhere in its file, absolute.

    With ``at_once`` only those that it imports when it is imported itself.
    """
    path = EVERY_MODULE[name]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node, name, path.name == "__init__.py")
            members = {f"{base}.{alias.name}" for alias in node.names}
            modules = members & EVERY_MODULE.keys()
            found.update(modules)
            if len(modules) < len(members):
                found.add(base)
    return found - {name}


def room(module: str) -> str | None:
    """The room of a module of the package, or None for its ``__init__`` and others."""
    parts = module.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 else None


def rooms_imported_by(name: str) -> set[str]:
    return {room(target) for target in imports(name)} - {None, room(name)}


PACKAGE_MODULES = [name for name in MODULES if room(name)]
NOT_IN_A_ROOM = {PACKAGE, f"{PACKAGE}.__main__"}


@pytest.mark.parametrize("name", [n for n in MODULES if n not in NOT_IN_A_ROOM])
def test_every_module_is_in_a_room_and_imports_point_to_lower_rooms(name):
    own = room(name)
    if own is None:  # of data_prep
        assert rooms_imported_by(name) <= DATA_PREP_MAY_IMPORT
        return
    for other in rooms_imported_by(name):
        lower = FLOOR_OF[other] < FLOOR_OF[own]
        assert lower or (own, other) in BESIDE_ALLOWED, f"{own} must not import {other}"


# What the models beside the captioner share; a folder of one model imports no other.
SHARED = "classifier evaluation layers models training".split()
SIBLING_MAY_IMPORT = {
    **dict.fromkeys(("draw", "words", *SHARED), set(SHARED)),
    "models": {"classifier", "ram", "draw", "words"},  # the table of all models
    "ram": {*SHARED, "draw"},  # one of its classifiers reads with DRAW's window
}


@pytest.mark.parametrize("own", SIBLING_MAY_IMPORT)
def test_models_beside_the_captioner_share_code_but_do_not_import_each_other(own):
    base = f"{PACKAGE}.siblings."
    modules = [n for n in MODULES if n == base + own or n.startswith(f"{base}{own}.")]
    assert modules
    for name in modules:
        found = {t.split(".")[2] for t in imports(name) if t.startswith(base)}
        assert found - {own} <= SIBLING_MAY_IMPORT[own], name


TRAINS = {f"{PACKAGE}.siblings.training"}
TRAINS |= {f"{PACKAGE}.siblings.{own}.training" for own in ("ram", "draw", "words")}


@pytest.mark.parametrize(
    "name", [n for n in PACKAGE_MODULES if room(n) == "siblings" and n not in TRAINS]
)
def test_models_beside_the_captioner_are_loaded_and_used_without_training(name):
    assert "training" not in rooms_imported_by(name)
    assert not imports(name) & TRAINS


NOT_ROOMS = {"artefacts", "support", "torture", "__pycache__"}


def test_tests_mirror_the_rooms():
    rooms = {path.parent.relative_to(ROOT) for path in source_files()}
    tested = {path.parent.relative_to(ROOT) for path in ROOT.glob("tests/**/test_*.py")}
    for folder in tested - {Path("tests")}:
        inside = folder.relative_to("tests")
        if inside.parts[0] not in NOT_ROOMS:
            assert inside in rooms or Path(PACKAGE) / inside in rooms, folder


@pytest.mark.parametrize("base", [PACKAGE, "data_prep"])
def test_no_folder_has_too_many_entries(base):
    for folder in [ROOT / base, *(ROOT / base).rglob("*")]:
        if folder.is_dir() and folder.name != "__pycache__":
            most = MOST_ENTRIES.get(folder.name, MOST_IN_A_ROOM)
            names = {path.name for path in folder.iterdir()} - {"__pycache__"}
            assert len(names) <= most, folder


def test_no_imports_run_in_a_circle():
    graph = {name: imports(name) & MODULES.keys() for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def loaded_with(name: str) -> set[str]:
    """Every library and module that an import of module ``name`` loads."""
    waiting, loaded = {name}, set()
    while waiting:
        targets = imports(waiting.pop(), at_once=True)
        waiting |= (targets & EVERY_MODULE.keys()) - loaded
        loaded |= targets
    return loaded


MODEL_CODE = [
    name
    for name in PACKAGE_MODULES
    if room(name) == "models" and not name.endswith((".encoder.network", ".winograd"))
]
SIBLINGS = "classifier layers ram.retina ram.model ram.prediction draw.filter_bank"
SIBLINGS += " draw.model draw.bound words.model words.augmentation words.convolutions"
SIBLINGS += " words.decoder words.encoder words.generation"
MODEL_CODE += [f"{PACKAGE}.siblings.{part}" for part in SIBLINGS.split()]


def outside(*rooms: str) -> list[str]:
    return [name for name in MODULES if room(name) not in rooms]


# Libraries, and the modules that import none of them.
NOT_IMPORTED = [
    ({"data_prep"}, [n for n in outside("cli", "cluster") if room(n)]),
    ({"benchmarks"}, MODULES),
    ({"ray"}, outside("cluster")),
    (HEAVY, [name for name in MODULES if ".metrics" in name]),
    (BACKENDS, MODEL_CODE),  # they run on any backend
]


@pytest.mark.parametrize(
    ("libraries", "name"),
    [(libraries, name) for libraries, names in NOT_IMPORTED for name in names],
)
def test_libraries_are_imported_only_where_they_may_be(libraries, name):
    assert not {target.split(".")[0] for target in imports(name)} & libraries


# Captions are written without Keras, and what is measured on JAX without TensorFlow.
CAPTIONS = [n for n in PACKAGE_MODULES if room(n) in ("inference", "reference")]
NOT_LOADED = [(HEAVY | {"matplotlib.pyplot"}, name) for name in CAPTIONS]
NOT_LOADED += [({"tensorflow"}, f"benchmarks.{part}") for part in ("gpu_ours", "ours")]


@pytest.mark.parametrize(("libraries", "name"), NOT_LOADED)
def test_libraries_are_loaded_only_where_they_may_be(libraries, name):
    loaded = loaded_with(name)
    assert not (loaded | {target.split(".")[0] for target in loaded}) & libraries


@pytest.mark.parametrize("name", MODULES)
def test_only_the_command_line_prints(name):
    calls = (
        node.func.id
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    assert "print" not in calls or room(name) == "cli"


@pytest.mark.parametrize("name", EVERY_MODULE)
def test_no_file_is_longer_than_400_lines(name):
    assert len(EVERY_MODULE[name].read_text(encoding="utf-8").splitlines()) <= 400


def test_every_package_folder_is_installed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    installed = set(setup["options"]["packages"].split())
    folders = {name for name, path in MODULES.items() if path.name == "__init__.py"} | {
        f"{PACKAGE}.experiments"
    }
    assert folders == installed


def test_every_library_imported_is_a_dependency():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = setup["options"]["install_requires"]
    for extra in ("cluster", "heic", "jax", "onnx", "train", "words"):
        lines += setup["options.extras_require"][extra]
    required = {
        re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in lines.split()
    }
    distribution_of = metadata.packages_distributions()
    used = {target.split(".")[0] for name in MODULES for target in imports(name)}
    used -= {*sys.stdlib_module_names, PACKAGE, "data_prep"}
    for name in used:
        named = distribution_of.get(name, [name])  # where an extra is not installed
        homes = {home.lower().replace("_", "-") for home in named}
        assert homes & required, f"{name} is not in setup.cfg"
