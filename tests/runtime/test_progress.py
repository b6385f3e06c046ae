"""The time left that a bar shows, with a clock that the test sets."""

from types import SimpleNamespace

import pytest

from show_attend_tell.runtime import progress
from show_attend_tell.runtime.progress import progress_bar


class Clock:
    """Seconds that pass only when a test adds them."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(clock, monkeypatch):
    """Return a function that makes a bar which reads the clock."""
    monkeypatch.setattr(progress, "time", SimpleNamespace(time=clock))
    monkeypatch.setattr("tqdm.std.time", clock)

    def make(total=1000, **options):
        bar = progress_bar(total, "step", **options)
        bar.mininterval = 0.1
        bar.start_t = bar.last_print_t = clock()
        return bar

    return make


def advance(bar, clock, seconds, updates=1):
    for _ in range(updates):
        clock.seconds += seconds
        bar.update()


def test_a_program_without_standard_error_has_no_bar(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar(3, "photo") as bar:
        bar.update()
    assert bar.disable


def test_the_time_left_follows_recent_updates(make, clock):
    with make() as bar:
        advance(bar, clock, 1.0, updates=200)
        advance(bar, clock, 0.25, updates=100)
        assert "<02:55" in str(bar)  # 700 updates of 0.25 s


def test_neither_the_first_update_nor_a_pause_changes_the_time_left(make, clock):
    with make() as bar:
        assert "<starting]" in str(bar)
        advance(bar, clock, 8.0)
        advance(bar, clock, 0.5, updates=10)
        assert "<08:14,  2.00step/s" in str(bar)  # 989 updates of 0.5 s
        clock.seconds += 120.0
        bar.exclude_pause()
        advance(bar, clock, 0.5)
        assert "<08:14,  2.00step/s" in str(bar)


def test_the_compilation_of_further_graphs_does_not_change_the_time_left(make, clock):
    with make() as bar:
        advance(bar, clock, 8.0)
        for _ in range(5):
            advance(bar, clock, 0.5, updates=10)
            clock.seconds += 9.0
            bar.update(compiled=True)
        advance(bar, clock, 0.5)
        assert "<07:51,  2.00step/s" in str(bar)  # 943 updates of 0.5 s


def test_work_done_before_does_not_raise_the_rate(make, clock):
    with make(done=900) as bar:
        advance(bar, clock, 3.0)
        advance(bar, clock, 1.0, updates=19)
        assert "920/1000" in str(bar)
        assert "<01:20" in str(bar)


def test_a_hidden_bar_writes_nothing(clock, capsys):
    with progress_bar(3, "step", shown=False) as bar:
        advance(bar, clock, 1.0, updates=3)
        bar.set_postfix_str("loss 1.00")
    assert capsys.readouterr() == ("", "")
