"""Java programs that hang, fail, or print malformed output."""

import errno
import logging
import os
import re
import shutil
import signal
import threading
import time

import numpy as np
import pycocoevalcap
import pytest
from refusals import refused

from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation.metrics import java, scoring
from show_attend_tell.evaluation.metrics.java import (
    meteor,
    ptb_tokenize,
    run_java,
    spice,
)
from show_attend_tell.runtime.errors import SetupError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake is a shell script")

SHORT = 0.5  # seconds until a hanging program is killed
GENEROUS = 60.0


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Return a function that replaces Java with lines of ``/bin/sh``."""

    def put(script: str) -> None:
        (tmp_path / "java").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "java").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def alive(pid: int) -> bool:
    """Return whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


TRACE = """
echo "Picked up JAVA_TOOL_OPTIONS: -Dx" >&2
echo "java.lang.Error: no" >&2
echo "  at Meteor.main" >&2
exit 1
"""


def call_meteor(timeout):
    return meteor(["a dog"], [["a dog"]], timeout)


def call_tokenizer(timeout):
    return ptb_tokenize(["a dog"], timeout)


@pytest.mark.parametrize(
    ("call", "script", "timeout", "message"),
    [
        (call_meteor, "exec sleep 600", SHORT, "did not end in 0.5 s"),
        (call_meteor, "read l; echo 1 2; exec sleep 600", SHORT, "did not end in"),
        (call_meteor, "echo boom >&2; exit 3", GENEROUS, "stopped with status 3: boom"),
        (call_meteor, TRACE, GENEROUS, "stopped with status 1: java.lang.Error: no"),
        (call_meteor, "exit 3", GENEROUS, "stopped with status 3: it gave no reason"),
        (call_meteor, "exit 0", GENEROUS, "printed 0 lines instead of 1"),
        (call_meteor, "read l; kill -9 $$", GENEROUS, "stopped with status -9"),
        (call_meteor, "read l; echo hello", GENEROUS, "printed 'hello' instead of 23"),
        (call_meteor, "read l; echo", GENEROUS, "printed '' instead of 23 numbers"),
        (call_meteor, "read l; echo 0,5", GENEROUS, "printed '0,5' instead of"),
        (call_meteor, "read l; echo NaN", GENEROUS, "printed 'NaN' instead of"),
        (call_meteor, "read l; echo 1; echo 2", GENEROUS, "printed 2 lines instead"),
        (call_tokenizer, "exec sleep 600", SHORT, "did not end in 0.5 s"),
        (call_tokenizer, "exit 1", GENEROUS, "stopped with status 1"),
        (call_tokenizer, "echo a; echo b", GENEROUS, "printed 2 lines instead of 1"),
    ],
)
def test_errors_of_programs_have_one_line(
    fake, monkeypatch, call, script, timeout, message
):
    monkeypatch.setattr(java, "_METEOR_SECONDS", 0)  # for each caption
    fake(script)
    with refused(SetupError) as caught:
        call(timeout)
    name = "METEOR" if call is call_meteor else "PTB tokenizer"
    assert str(caught.value).startswith(f"{name}: java {message}")


def test_lines_say_what_is_waited_for_and_for_how_long(fake, monkeypatch, caplog):
    monkeypatch.setattr(java, "_FIRST_LINE", 0.2)
    monkeypatch.setattr(java, "_NEXT_LINE", 0.2)
    fake("cat; sleep 0.7")
    with caplog.at_level(logging.INFO):
        assert run_java("METEOR", [], "0.5\n", GENEROUS)[0] == "0.5\n"
    assert re.fullmatch(
        r"METEOR: waiting for java, \d+ s of at most 60", caplog.messages[0]
    )


def test_a_slow_java_gets_all_of_its_input(fake, monkeypatch):
    """More than a pipe holds, and the program reads it after the first line."""
    monkeypatch.setattr(java, "_FIRST_LINE", 0.2)
    fake("sleep 0.5; cat")
    text = "a dog runs\n" * 20_000
    assert run_java("METEOR", [], text, 20)[0] == text


def test_input_that_finds_no_place_is_one_line(fake, monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(java.tempfile, "TemporaryFile", full)
    fake("cat")
    with pytest.raises(SetupError, match="METEOR: .* No space left on device"):
        run_java("METEOR", [], "0.5\n", GENEROUS)


def test_a_java_that_hangs_is_waited_for_once(fake, monkeypatch):
    monkeypatch.setattr(scoring, "_JAVA_SECONDS", SHORT)
    fake("exec sleep 600")
    result = scoring.score({"a": "a dog"}, {"a": ["a dog."]})
    assert result.tokenizer == "simple"
    assert any("PTB tokenizer: java did not end" in note for note in result.notes)
    assert "no METEOR: java hangs" in result.notes


def test_megabytes_on_standard_error_do_not_block(fake):
    fake("head -c 3000000 /dev/zero >&2; cat")
    assert run_java("cat", [], "0.5\n", GENEROUS)[0] == "0.5\n"


@pytest.mark.nightly
def test_a_hanging_program_is_killed_at_the_time_limit(fake, tmp_path):
    fake(f"echo $$ > '{tmp_path}/pid'; exec sleep 600")
    with pytest.raises(SetupError, match="did not end in 10 s"):
        run_java("Java", [], "unread " * 200_000, 10)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_program_is_killed_by_ctrl_c(fake, tmp_path):
    fake(f"echo $$ > '{tmp_path}/pid'; exec sleep 600")
    ended = threading.Event()

    def press():
        while not (tmp_path / "pid").exists() and not ended.wait(0.05):
            pass
        ended.wait(0.5)  # until the call waits for the program
        os.kill(os.getpid(), signal.SIGALRM)  # pytest-xdist's workers ignore SIGINT

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_java("Java", [], "", GENEROUS)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGALRM, previous)
    pid, end = int((tmp_path / "pid").read_text()), time.monotonic() + GENEROUS
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def test_meteor_requests_statistics_and_then_scores(fake, tmp_path):
    statistics = " ".join(map(str, range(1, 24)))
    answer = 'case "$l" in EVAL*) echo 0.25; echo 0.5; echo 0.75;; '
    answer += f"*) echo {statistics};; esac"
    fake(f"while read l; do echo \"$l\" >> '{tmp_path}/asked'; {answer}; done")
    references = [["a ||| cat", "one\ndog"], ["a cat"]]
    scores = meteor(["the ||| dog", "cats"], references, GENEROUS)
    assert scores.value == 75
    np.testing.assert_array_equal(scores.statistic.values, [range(1, 24)] * 2)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == [
        "SCORE ||| a cat ||| one dog ||| the dog",
        "SCORE ||| a cat ||| cats",
        f"EVAL ||| {statistics} ||| {statistics}",
    ]


def test_a_java_that_is_not_a_program_is_named_in_the_error(tmp_path, monkeypatch):
    (tmp_path / "java").write_bytes(b"\x00\x01")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="cannot be run"):
        call_meteor(GENEROUS)


@pytest.fixture
def package(tmp_path_factory, monkeypatch):
    """Return a copy of pycocoevalcap's files below a folder with a space."""
    source = pycocoevalcap.__path__[0]
    target = tmp_path_factory.mktemp("with a space") / "pycocoevalcap"
    for part in ("meteor", "tokenizer", "spice"):
        shutil.copytree(f"{source}/{part}", target / part, copy_function=os.symlink)
    monkeypatch.setattr(pycocoevalcap, "__path__", [str(target)])
    return target


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_java_programs_run_below_a_folder_with_a_space(package):
    before = sorted(package.rglob("*"))
    assert ptb_tokenize(["A dog."], 120) == ["a dog"]
    assert call_meteor(120).value > 90
    assert sorted(package.rglob("*")) == before


@pytest.mark.usefixtures("java")
def test_the_ptb_tokenizer_and_the_vocabularys_agree_on_typographic_punctuation():
    texts = ["a dog’s ball", "he can’t, won’t", "a “stop” sign", "a boy ‘smiles’"]
    texts += ["«stop» sign", "a man — in a hat", "a dog – runs―fast", "dogs play…"]
    texts += ["“A dog runs.” she said", "o’clock", "rock ’n’ roll", "the dogs’ toys"]
    texts += ["¿un perro?", "„ein Hund‟", "一只狗，在跑。", "कुत्ता है।", "كلب،", "…", "—"]
    texts += ["cafe\u0301 a\u200b dog\ufeff", "\u200b", "twenty‐one non‑stop"]
    expected = [" ".join(tokenize(text)) for text in texts]
    assert ptb_tokenize(texts, 120) == expected


@pytest.mark.usefixtures("java")
def test_a_missing_jar_is_named_in_the_error(package):
    (package / "meteor" / "meteor-1.5.jar").unlink()
    with pytest.raises(SetupError, match=r"jarfile .*meteor-1\.5\.jar"):
        call_meteor(GENEROUS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('[{"scores": {"All": {"f": 0.25}}}]', None),
        ('[{"scores": {"All": {"f": NaN}}}]', "java scored 1 captions of 1"),
        ("[]", "java scored 0 captions of 1"),
        ("{]", "java wrote no usable scores"),
    ],
)
def test_spice_reads_the_scores_from_the_output_file(fake, package, rows, message):
    for name in ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar"):
        if not (package / "spice" / "lib" / name).exists():
            (package / "spice" / "lib" / name).touch()
    script = 'while [ "$1" != "-out" ]; do shift; done; '
    fake(f"{script} echo '{rows}' > \"$2\"")
    if message is None:
        assert spice(["a dog"], [["a dog"]], GENEROUS).value == 25
        return
    with pytest.raises(SetupError, match=message):
        spice(["a dog"], [["a dog"]], GENEROUS)
