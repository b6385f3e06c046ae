"""Python blocks of README.md and of pages in docs/ run as they are printed."""

import os
import re
import shutil
from pathlib import Path

import pytest
from new_process import python
from tensor_files import unpacked
from tiny_pipeline import photo_bytes

from show_attend_tell.models.pretrained import SHIPPED

ROOT = Path(__file__).resolve().parents[1]


def blocks(name: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def run(name: str, folder: Path):
    """Run the blocks of a document, in order, in a folder with its photos."""
    for photo in ("photo.jpg", "docs/images/sheep.jpg"):
        (folder / photo).parent.mkdir(parents=True, exist_ok=True)
        (folder / photo).write_bytes(photo_bytes(1, "JPEG", size=(60, 40)))
    code = "\n".join(blocks(name))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return python("-c", code, cwd=folder, env=environment)


def test_the_blocks_of_the_readme_run(tmp_path):
    assert "sat.load(" in "".join(blocks("README.md"))
    done = run("README.md", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_blocks_of_the_python_page_run(tmp_path):
    assert len(blocks("docs/python.md")) >= 3
    done = run("docs/python.md", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, third, failure, *_, last = done.stdout.splitlines()
    assert first == second == third
    assert failure == "photo-4: cannot be read as a photo: unknown image format"
    assert last == "A red photo."


def test_the_block_of_the_transformer_page_changes_nothing_but_the_head(
    tmp_path, monkeypatch
):
    file = tmp_path / "experiments/runs/scenes_transformer/model.safetensors"
    file.parent.mkdir(parents=True)
    shutil.copyfile(SHIPPED, file)
    before, arrays_before = unpacked(file)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/transformer.md")
    exec(block, {})
    after, arrays_after = unpacked(file)
    shown = after["config"]["transformer"]
    assert (shown["alpha_layer"], shown["alpha_head"]) == (1, 2)
    for part in ("reranker", "confidence"):
        assert after[part] == before[part]
        names = [name for name in arrays_before if name.startswith(f"{part}/")]
        assert names
        for name in names:
            assert (arrays_after[name] == arrays_before[name]).all()


def test_the_block_about_the_file_of_a_model_reads_the_default_model(
    tmp_path, monkeypatch, capsys
):
    shutil.copyfile(SHIPPED, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    exec(blocks("docs/exports.md")[-1], {})
    assert capsys.readouterr().out.startswith("Captioner {")
