"""The parts of the comparison with an earlier revision that only compute."""

import json
import re
from pathlib import Path

import click
import pytest

from research.freeze import scores, sentences, transcript
from research.freeze.checkout import Checkout, engine_options
from research.freeze.documents import commands, commands_of
from research.freeze.transcript import Entry
from show_attend_tell.cli.main import cli
from show_attend_tell.runtime import plugins

ROOT = Path(__file__).resolve().parents[2]

PAGE = """# A page

    show-attend-tell caption photo.jpg  # a sentence
    u_t = where(h_{t-1})
    show-attend-tell caption --model a \\
        --beam 10 photo.jpg

```console
$ curl -F photo=@me.jpg http://127.0.0.1:8000/caption
```

```python
make = "no command"
```

    [Service]
    ExecStart=/opt/bin/show-attend-tell demo
    export A='{"b":
               1}'
    KERAS_BACKEND=jax python research/train.py
    make train   # later

The text `show-attend-tell demo` is no block.
"""


def test_commands_of_a_page_are_its_console_lines():
    assert commands(PAGE) == [
        "show-attend-tell caption photo.jpg",
        "show-attend-tell caption --model a --beam 10 photo.jpg",
        "curl -F photo=@me.jpg http://127.0.0.1:8000/caption",
        """export A='{"b": 1}'""",
        "KERAS_BACKEND=jax python research/train.py",
        "make train",
    ]


def test_each_command_of_the_documents_is_run_or_has_a_reason():
    found = commands_of(ROOT)
    assert len({command.document for command in found}) > 10
    ways = {"run": 0, "reason": 0}
    for command in found:
        words = transcript.split(command.text)
        reason = transcript.reason_not_to_run(words, quick=False)
        ways["run" if reason is None else "reason"] += 1
    assert min(ways.values()) > 20


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("show-attend-tell caption photo.jpg", None),
        ("show-attend-tell caption photos/ --cluster auto", "needs a cluster"),
        ("show-attend-tell train -e scenes", "needs prepared data"),
        (".venv/bin/pip install -e .", "installs packages"),
        ("A=1 python docs/a.py", "measures or trains"),
        ("show-attend-tell export MODEL --format [--beam 10]", None),
    ],
)
def test_a_command_without_its_data_has_a_reason(command, reason):
    words = transcript.split(command)
    assert transcript.reason_not_to_run(words, quick=False) == reason


def test_the_photos_of_commands_are_among_the_fixtures(tmp_path):
    (tmp_path / "Flicker8k_Dataset").mkdir()
    names = ["1.jpg", "2.jpg", "3.jpg"]
    for name in names:
        (tmp_path / "Flicker8k_Dataset" / name).touch()
    (tmp_path / "Flickr_8k.devImages.txt").write_text("\n".join(names))
    fixtures = tmp_path / "fixtures"
    transcript.write_fixtures(Checkout(ROOT), tmp_path, fixtures)
    for command in commands_of(ROOT):
        words = transcript.split(command.text)
        if transcript.reason_not_to_run(words, quick=False) is None:
            for name in re.findall(r"(?:^|[ @])([\w/]+\.(?:jpg|png))", command.text):
                assert (fixtures / name).exists(), command


@pytest.mark.skipif(not plugins.installed(), reason="needs the plug-ins' verbs")
def test_verbs_of_commands_are_installed():
    for command in commands_of(ROOT):
        words = transcript.split(command.text)
        if words[0] == "show-attend-tell" and words[1] not in transcript.NOT_INSTALLED:
            verb = words[1]
            assert verb[0] == "-" or cli.get_command(click.Context(cli), verb), command


def test_a_program_that_is_not_installed_is_not_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    runner = transcript.Runner(Checkout(ROOT), tmp_path, quick=False)
    status, reason = runner.run(["exiftool", "-r", "holiday/"])
    assert status is None
    assert reason == "needs a program that is not installed"


def test_quick_leaves_out_slow_commands():
    for command in ("show-attend-tell export a --format half", "curl http://a"):
        assert transcript.reason_not_to_run(command.split(), quick=False) is None
        assert transcript.reason_not_to_run(command.split(), quick=True)


def test_model_stands_for_the_shipped_one_and_optional_options_go():
    words = transcript.split("show-attend-tell export MODEL --out a [--beam 10]")
    assert words == ["show-attend-tell", "export", "shipped", "--out", "a"]


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("took 12.5 s, 3 photos", "took <time>, 3 photos"),
        ("A sheep. (likely, 0.67)", "A sheep. (likely, 0.67)"),
        ("p -9.17912345 and 1.25e-07", "p -9.179 and 1.25e-07"),
        ("model.keras 0123456789ab, beam 5", "model.keras <hex>, beam 5"),
        ("keras 3.15.1 at 127.0.0.1:8765", "keras <version> at 127.0.0.1:<port>"),
        ("caption:  50%|██   | 1/2 [0:01<0:01]\ndone", "done"),
        ("I0000 00:00:1.79e+09 cudart_stub.cc\ndone", "done"),
    ],
)
def test_what_varies_from_run_to_run_is_replaced(text, normalised):
    assert transcript.normalise(text) == normalised


def test_a_command_that_fails_is_a_failure_unless_it_failed_before():
    good = Entry("a.md", "make x", 0, "fine")
    bad = Entry("a.md", "make x", 2, "error")
    not_run = Entry("a.md", "make x", None, "needs data")
    assert transcript.failures([good], [bad]) == ["a.md: `make x` fails with status 2"]
    assert transcript.failures([bad], [bad]) == []
    assert transcript.failures([good], [not_run]) == []
    assert transcript.failures([], [bad])  # a new command must succeed


def test_differences_of_transcripts_are_the_changed_lines():
    before = [Entry("a.md", "make x", 0, "one\ntwo\n")]
    after = [Entry("a.md", "make x", 0, "one\nthree\n")]
    changed = [
        line
        for line in transcript.differences(before, after)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert changed == ["-two", "+three"]
    assert transcript.differences(before, before) == []


def write_captions(path: Path, rows: dict[str, tuple[str, float]]) -> None:
    lines = (
        json.dumps({"path": f"/x/{photo}", "caption": text, "log_prob": log_prob})
        for photo, (text, log_prob) in rows.items()
    )
    path.write_text("\n".join(lines) + "\n")


def test_changed_sentences_log_probabilities_and_missing_photos_are_differences(
    tmp_path,
):
    before = {"a": ("a dog", -1.0), "b": ("a cat", -2.0), "c": ("a cow", -3.0)}
    after = {"a": ("a dog", -1.000009), "b": ("a bat", -2.0), "d": ("a cow", -3.0)}
    write_captions(tmp_path / "before", before)
    write_captions(tmp_path / "after", after)
    old, new = (sentences.read(tmp_path / name) for name in ("before", "after"))
    assert sentences.differences(old, old) == []
    lines = sentences.differences(old, new)
    assert [line.split(":")[0] for line in lines] == ["b", "c", "d"]
    moved = {"a": ("a dog", -1.00002)}
    assert sentences.differences({"a": ("a dog", -1.0)}, moved)
    assert sentences.differences({"a": ("a dog", -1.0)}, {"a": ("a dog", float("nan"))})


def test_scores_that_change_or_go_are_differences_and_new_ones_are_not():
    file = {"BLEU-4": 20.5, "CIDEr": 57.0, "SPICE": None, "seconds": 3.0, "beam": 5}
    before = scores.numbers(file | {"mirror": True, "split": "val"})
    assert before == {"BLEU-4": 20.5, "CIDEr": 57.0}
    assert scores.differences(before, before | {"repeats": 0.1}) == []
    assert scores.differences(before, {"BLEU-4": 20.6, "CIDEr": 57.0})
    assert scores.differences(before, {"BLEU-4": 20.5})


@pytest.mark.parametrize(
    ("usage", "numpy"),
    [
        ("--engine [auto|reference|keras] ...", ("--engine", "reference")),
        ("--engine [numpy|keras]", ("--engine", "numpy")),
        ("--engine [keras]   Caption with Keras.", ()),
    ],
)
def test_the_option_of_an_engine_is_read_from_the_usage(usage, numpy):
    assert engine_options(usage, "numpy") == numpy
    assert engine_options(usage, "keras") == ("--engine", "keras")


def test_a_usage_without_engines_is_an_error():
    with pytest.raises(RuntimeError, match="--engine"):
        engine_options("--beam N", "keras")


def test_a_shipped_model_is_found_by_its_name():
    file = Checkout(ROOT).model_file("everyday_lstm")
    assert file.stem == "everyday_lstm"
    with pytest.raises(RuntimeError, match="nonesuch"):
        Checkout(ROOT).model_file("nonesuch")
