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

# A room may import rooms of its own layer and of lower ones, never of higher ones.
ROOMS_BY_LAYER = {
    1: "categorical config experiment features garbage hard_settings manifest photos"
    " progress scene_net vocabulary",
    2: "attention initializers losses",
    3: "recurrence decoder hard_attention",
    4: "captioner compilation generation teacher_forcing",
    5: "average train evaluate caption visualize doctor attention_health term_norms"
    " attention_statistics caption_album caption_figures caption_result caption_rows"
    " captions_file captions_page checkpoint evaluation_report graph_photos"
    " graph_writer half_precision likelihood litert model_card model_file optimizer"
    " page photo_captioner photo_folders prepared projector runs saved_model"
    " self_critical shipped_model startup teller training_log uploads validation",
    6: "cli cli_caption cli_demo cli_options web_app web_desk web_guard web_server"
    " __main__",
}
LAYERS = {
    name: layer for layer, names in ROOMS_BY_LAYER.items() for name in names.split()
}
# These sit beside layers 2 to 4: they import layer 1 only and serve layers 4 to 6.
BESIDE = {"encoder", "dataset", "decoding", "metrics", "pointing"}
DATA_PREP_MAY_IMPORT = {"encoder"} | {n for n, layer in LAYERS.items() if layer == 1}
COMMAND_LINE = {"cli", "cli_demo"}
HEAVY = {"tensorflow", "keras"}
BACKENDS = {"tensorflow", "jax", "torch"}


def source_files() -> list[Path]:
    """Every Python file of the two packages."""
    folders = (ROOT / PACKAGE, ROOT / "data_prep")
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def module_name(path: Path) -> str:
    """``show_attend_tell/metrics/__init__.py`` -> ``show_attend_tell.metrics``."""
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
DATA_PREP_MODULES = [name for name in MODULES if name.startswith("data_prep")]


@pytest.mark.parametrize("name", PACKAGE_MODULES)
def test_every_module_has_a_place_in_the_layers(name):
    assert room(name) in LAYERS.keys() | BESIDE


@pytest.mark.parametrize("name", PACKAGE_MODULES)
def test_imports_point_to_the_same_layer_or_down(name):
    own = room(name)
    for other in rooms_imported_by(name):
        if own in BESIDE:
            assert LAYERS.get(other) == 1, f"{own} must not import {other}"
        elif other in BESIDE:
            assert LAYERS[own] >= 4, f"{own} must not import {other}"
        else:
            assert LAYERS[other] <= LAYERS[own], f"{own} must not import {other}"


def test_no_imports_run_in_a_circle():
    graph = {name: imports(name) & MODULES.keys() for name in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("name", PACKAGE_MODULES)
def test_only_the_command_line_imports_data_prep(name):
    targets = {target.split(".")[0] for target in imports(name)}
    assert "data_prep" not in targets or room(name) in COMMAND_LINE


@pytest.mark.parametrize("name", DATA_PREP_MODULES)
def test_data_prep_imports_only_what_it_may(name):
    assert rooms_imported_by(name) <= DATA_PREP_MAY_IMPORT


@pytest.mark.parametrize("name", MODULES)
def test_nothing_imports_the_benchmarks(name):
    assert "benchmarks" not in {target.split(".")[0] for target in imports(name)}


@pytest.mark.parametrize("name", ["benchmarks.gpu_ours", "benchmarks.ours"])
def test_what_is_measured_on_jax_does_not_import_tensorflow(name):
    waiting, seen = {name}, set()
    while waiting:
        module = waiting.pop()
        found = imports(module, at_once=True)
        assert "tensorflow" not in {target.split(".")[0] for target in found}, module
        seen.add(module)
        waiting |= (found & EVERY_MODULE.keys()) - seen


@pytest.mark.parametrize("name", [n for n in PACKAGE_MODULES if room(n) == "metrics"])
def test_metrics_never_import_tensorflow_or_keras(name):
    assert not {target.split(".")[0] for target in imports(name)} & HEAVY


@pytest.mark.parametrize("name", PACKAGE_MODULES)
def test_the_models_code_names_a_backend_in_one_file_alone(name):
    if LAYERS.get(room(name), 5) in (2, 3, 4) or room(name) == "decoding":
        named = {target.split(".")[0] for target in imports(name)} & BACKENDS
        assert not named or room(name) == "compilation"


@pytest.mark.parametrize("name", MODULES)
def test_only_the_command_line_prints(name):
    calls = (
        node.func.id
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    assert "print" not in calls or room(name) == "cli"


@pytest.mark.parametrize("name", EVERY_MODULE)
def test_no_file_is_longer_than_300_lines(name):
    assert len(EVERY_MODULE[name].read_text(encoding="utf-8").splitlines()) <= 300


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
    lines = (
        setup["options"]["install_requires"] + setup["options.extras_require"]["jax"]
    )
    required = {re.match(r"[\w-]+", line)[0].lower() for line in lines.split()}
    distribution_of = metadata.packages_distributions()
    used = {target.split(".")[0] for name in MODULES for target in imports(name)}
    used -= {*sys.stdlib_module_names, PACKAGE, "data_prep"}
    for name in used:
        homes = {home.lower() for home in distribution_of.get(name, [name])}
        assert homes & required, f"{name} is not in setup.cfg"
