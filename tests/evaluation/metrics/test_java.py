"""Java is supervised: a fake one hangs, dies, prints rubbish or floods."""

import os
import shutil
import time

import fake_java
import pycocoevalcap
import pytest

from show_attend_tell.evaluation.metrics import score
from show_attend_tell.evaluation.metrics.java import JavaProcess
from show_attend_tell.evaluation.metrics.meteor import meteor
from show_attend_tell.evaluation.metrics.spice import spice
from show_attend_tell.evaluation.metrics.tokenization import ptb_tokenize
from show_attend_tell.runtime.errors import JavaError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake is a shell script")

SHORT = 0.5  # seconds until a hanging program is given up
GENEROUS = 60.0


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A function that puts a script in Java's place."""

    def put(script: str) -> None:
        monkeypatch.setenv("PATH", fake_java.install(tmp_path, script))

    return put


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "timeout", "message"),
    [
        ("sleep 600", SHORT, "METEOR: java gave no answer in 0.5 s"),
        ("exec sleep 600", SHORT, "METEOR: java gave no answer in 0.5 s"),
        ("read line; echo 1 2; sleep 600", SHORT, "METEOR: java gave no answer"),
        ("echo boom >&2; exit 3", GENEROUS, "METEOR: java stopped with status 3: boom"),
        ("exit 0", GENEROUS, "METEOR: java stopped with status 0: it gave no reason"),
        ("read l; kill -9 $$", GENEROUS, "METEOR: java stopped with status -9"),
        ("exec >&-; sleep 600", GENEROUS, "METEOR: java closed its output"),
        ("read l; echo hello", GENEROUS, "METEOR: java printed 'hello' in place of"),
        ("read l; echo", GENEROUS, "METEOR: java printed '' in place of a number"),
        ("read l; echo 0,5", GENEROUS, "METEOR: java printed '0,5' in place of"),
        ("read l; echo NaN", GENEROUS, "METEOR: java printed 'NaN' in place of"),
        ("yes | tr -d '\\n'", GENEROUS, "METEOR: java printed a line without end"),
    ],
)
def test_meteor_says_in_one_line_what_failed(fake, script, timeout, message):
    fake(script)
    begin = time.monotonic()
    with pytest.raises(JavaError) as caught:
        meteor(["a dog"], [["a dog"]], timeout)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begin < 30


def test_the_exception_is_quoted_and_the_noise_is_not(fake):
    trace = (
        'echo "Picked up JAVA_TOOL_OPTIONS: -Dx" >&2; echo "java.lang.Error: no" >&2'
    )
    fake(f"{trace}; echo '  at Meteor.main' >&2; exit 1")
    with pytest.raises(JavaError, match="status 1: java.lang.Error: no$"):
        meteor(["a dog"], [["a dog"]], GENEROUS)


def test_megabytes_of_complaints_block_nothing(fake):
    fake('head -c 3000000 /dev/zero >&2; while read l; do echo "0.5"; done')
    with JavaProcess("METEOR", [], GENEROUS) as process:
        assert process.ask("SCORE") == "0.5"


def test_a_program_that_reads_nothing_is_given_up(fake):
    fake("sleep 600")
    with pytest.raises(JavaError, match="no answer"):
        meteor(["dog " * 200_000], [["a dog"]], SHORT)


def test_children_of_a_hanging_program_are_killed(fake, tmp_path):
    fake(f"sleep 600 & echo $$ $! > '{tmp_path}/pids'; wait")
    with pytest.raises(JavaError):
        meteor(["a dog"], [["a dog"]], SHORT)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    end = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_a_program_is_reaped_when_our_own_code_fails(fake):
    fake("sleep 600")
    with pytest.raises(KeyError), JavaProcess("METEOR", [], GENEROUS) as process:
        raise KeyError
    assert process._process.returncode == -9


@pytest.mark.parametrize(
    ("script", "timeout", "message"),
    [
        ("sleep 600", SHORT, "PTB tokenizer: java gave no answer in 0.5 s"),
        ("exit 1", GENEROUS, "PTB tokenizer: java stopped with status 1"),
        ("echo a; echo b", GENEROUS, "PTB tokenizer: java printed 2 lines for 1"),
        ("yes", GENEROUS, "PTB tokenizer: java printed more than"),
    ],
)
def test_the_tokenizer_says_in_one_line_what_failed(fake, script, timeout, message):
    fake(script)
    with pytest.raises(JavaError) as caught:
        ptb_tokenize(["a dog"], timeout)
    assert str(caught.value).startswith(message)


def test_meteor_asks_for_statistics_and_then_for_scores(fake, tmp_path):
    answer = 'case "$l" in EVAL*) echo 0.25; echo 0.75;; *) echo 1 2;; esac'
    fake(f"while read l; do echo \"$l\" >> '{tmp_path}/asked'; {answer}; done")
    references = [["a ||| cat", "one\ndog"]]
    assert meteor(["the ||| dog"], references, GENEROUS) == (0.75, [0.25])
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["SCORE ||| a cat ||| one dog ||| the dog", "EVAL ||| 1 2"]


def test_a_broken_java_costs_only_what_needs_it(fake):
    fake("echo broken >&2; exit 1")
    report = score({"a": "a dog"}, {"a": ["a dog"]})
    assert report.tokenizer == "simple"
    assert "METEOR" not in report.scores
    assert report.scores["BLEU-1"] == pytest.approx(100, abs=1e-5)
    assert sum("status 1: broken" in note for note in report.notes) == 2


def test_a_file_that_is_no_program_is_named(tmp_path, monkeypatch):
    (tmp_path / "java").write_bytes(b"\x00\x01")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="cannot be run"):
        meteor(["a dog"], [["a dog"]], GENEROUS)


@pytest.fixture
def package(tmp_path_factory, monkeypatch):
    """A copy of pycocoevalcap's files below a folder with a space."""
    source = pycocoevalcap.__path__[0]
    target = tmp_path_factory.mktemp("with a space") / "pycocoevalcap"
    for part in ("meteor", "tokenizer", "spice"):
        shutil.copytree(f"{source}/{part}", target / part, copy_function=os.symlink)
    monkeypatch.setattr(pycocoevalcap, "__path__", [str(target)])
    return target


@pytest.mark.slow
def test_java_programs_run_below_a_folder_with_a_space(java, package):
    before = sorted(package.rglob("*"))
    assert ptb_tokenize(["A dog."], 120) == ["a dog"]
    assert meteor(["a dog"], [["a dog"]], 120)[0] > 0.9
    assert sorted(package.rglob("*")) == before


def test_a_missing_jar_is_named(package):
    (package / "meteor" / "meteor-1.5.jar").unlink()
    with pytest.raises(JavaError, match="meteor-1.5.jar: missing; reinstall"):
        meteor(["a dog"], [["a dog"]], GENEROUS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('[{"scores": {"All": {"f": 0.25}}}]', None),
        ('[{"scores": {"All": {"f": NaN}}}]', "java scored 1 captions of 1"),
        ("[]", "java scored 0 captions of 1"),
        ("rubbish", "java wrote no usable scores"),
    ],
)
def test_spice_reads_the_scores_that_java_wrote(fake, package, rows, message):
    for name in ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar"):
        if not (package / "spice" / "lib" / name).exists():
            (package / "spice" / "lib" / name).touch()
    script = 'while [ "$1" != "-out" ]; do shift; done; '
    fake(f"{script} echo '{rows}' > \"$2\"")
    if message is None:
        assert spice(["a dog"], [["a dog"]], GENEROUS) == 0.25
    else:
        with pytest.raises(JavaError, match=message):
            spice(["a dog"], [["a dog"]], GENEROUS)
