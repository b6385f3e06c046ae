"""The plug-in that docs/plugins.md prints, installed from a folder of its own."""

import dataclasses
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import requests
import served
from PIL import Image
from pydantic.dataclasses import dataclass as pydantic_dataclass
from refusals import refusal
from tiny_pipeline import tiny_pipeline

from data_prep.prepare import prepare
from show_attend_tell.config.settings import (
    experiment_from_dict,
    read_experiment_file,
)
from show_attend_tell.runtime import plugins
from show_attend_tell.runtime.errors import ConfigError, DataError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "plugins.md"
COLOURS = {"autumn": (200, 90, 20), "winter": (220, 230, 245)}


def files_of_page() -> dict[str, str]:
    """Return the content of each block with a title, by its title."""
    blocks = re.findall(
        r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE.read_text("utf-8"), re.M | re.S
    )
    return dict(blocks)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the plug-in into a folder; return it."""
    source = tmp_path_factory.mktemp("source")
    target = tmp_path_factory.mktemp("installed")
    for name, content in files_of_page().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content, encoding="utf-8")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    command = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*command, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def plugin(installed, monkeypatch):
    """Load the plug-in; return it."""
    monkeypatch.syspath_prepend(str(installed))
    plugins.installed.cache_clear()
    yield plugins.installed()[-1]
    plugins.installed.cache_clear()
    for name in ("tint", "tint.settings"):
        sys.modules.pop(name, None)


@pytest.fixture
def photos(tmp_path):
    """A folder of noisy photos of each colour."""
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            noisy = np.clip(rng.normal(colour, 20, (8, 8, 3)), 0, 255)
            path = tmp_path / "photos" / name / f"{number}.png"
            Image.fromarray(np.uint8(noisy)).save(path)
    return tmp_path / "photos"


def test_its_verb_and_experiment_run(plugin, photos, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("seasons.toml").write_text(files_of_page()["seasons.toml"])
    assert "  tint " in run("--help")[1]
    options = ("-e", "seasons.toml")
    code, out, _ = run("prepare", *options, "--data", "photos")
    assert (code, out.splitlines()[0]) == (0, "train: 6 photos")
    code, out, err = run("train", *options)
    assert code == 0, err
    assert "best accuracy 100.00" in out
    assert run("eval", *options) == (0, "seasons: accuracy 100.0 %\n", "")
    model = "experiments/runs/seasons/model.json"
    for name in COLOURS:
        photo = f"photos/{name}/0.png"
        assert run("tint", "--model", model, photo) == (0, f"{name}\n", "")
    # The run is kept although its model is no file of ours.
    code, _, err = run("train", *options)
    assert code == 1
    assert "replace it with --overwrite" in err
    assert run("train", *options, "--overwrite")[0] == 0
    code, _, err = run("train", *options, "--limit", "2")
    assert code == 2
    assert "whose task is 'tint'" in " ".join(err.split())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ('source = "scenes"', "data.source must be 'coloured'. Received: 'scenes'"),
        ('source = "coloured"\nside = 8', "data.side: unknown key"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(plugin, tmp_path, changed, reason):
    text = files_of_page()["seasons.toml"].replace('source = "coloured"', changed)
    path = tmp_path / "seasons.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="seasons.toml: ") as error:
        read_experiment_file(path)
    assert reason in str(error.value)


def with_settings(plugin, monkeypatch, dataclass):
    """Give the plug-in's task settings of its own."""
    task = dataclasses.replace(plugin.tasks[0], settings=lambda: dataclass)
    monkeypatch.setattr(plugins, "tasks", lambda: {task.name: task})


VALUES = {
    "name": "seasons",
    "task": "tint",
    "data": {"name": "seasons", "source": "coloured"},
}


def test_the_settings_of_the_page_are_read_and_refuse_misspelt_keys(
    plugin, monkeypatch
):
    settings = importlib.import_module("tint.settings")
    with_settings(plugin, monkeypatch, settings.TintExperiment)
    assert experiment_from_dict(VALUES).data.side == 8
    for table in ("data", "training"):
        misspelt = {**VALUES, table: {**VALUES.get(table, {}), "sied": 4}}
        message = refusal(ConfigError, experiment_from_dict, misspelt)
        assert message.startswith(f"settings: {table}.sied: unknown key")


@pytest.mark.parametrize("decorator", [dataclasses.dataclass, pydantic_dataclass])
def test_settings_that_would_ignore_misspelt_keys_are_refused(
    plugin, monkeypatch, decorator
):
    @decorator
    class Lax:
        name: str
        task: str
        data: dict

    with_settings(plugin, monkeypatch, Lax)
    message = refusal(ConfigError, experiment_from_dict, {**VALUES, "dta": {}})
    assert "the task 'tint' must be a dataclass of pydantic with config=STRICT" in (
        message
    )


def test_a_source_that_nothing_prepares_is_refused_in_one_line(tmp_path):
    experiment = SimpleNamespace(data=SimpleNamespace(name="a", source="colored"))
    message = refusal(DataError, prepare, experiment, None, tmp_path)
    assert message.startswith("data.source must be 'flickr8k' or ")
    assert message.endswith("Received: 'colored'; correct it")


def test_its_tab_is_on_the_page_and_answers(plugin, photos):
    with served.serving({"tiny": tiny_pipeline()}, tabs=[plugin.tab]) as address:
        content = (photos / "autumn" / "0.png").read_bytes()
        found = served.post(address, "tint", content).json()["colour"]
        page = requests.get(address, timeout=60).text
        script = requests.get(f"{address}/static/tint/tint.js", timeout=60)
    np.testing.assert_allclose(found, COLOURS["autumn"], atol=15)
    assert 'id="tint-file"' in page
    assert '<script src="static/tint/tint.js" defer>' in page
    assert "onStart(startTint)" in script.text


def test_doctor_prints_its_row(plugin):
    assert list(plugin.doctor()) == [("OK", "tint: NumPy is all it needs")]


@pytest.mark.slow
def test_its_tab_works_in_a_browser(plugin, photos, tmp_path):
    pytest.importorskip("selenium.webdriver")
    from chromium import browser, upload, wait

    with (
        served.serving({"tiny": tiny_pipeline()}, tabs=[plugin.tab]) as address,
        browser(tmp_path, offline=False) as page,
    ):
        page.get(address)
        wait(page, lambda b: b.find_element("id", "tab-tint").is_displayed())
        page.find_element("id", "tab-tint").click()
        content = (photos / "autumn" / "0.png").read_bytes()
        upload(page, "tint-file", tmp_path / "photo.png", content)
        shown = page.find_element("id", "tint-result")
        wait(page, lambda b: shown.text.startswith("red, green, blue: "))
