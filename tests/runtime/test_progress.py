"""The time left that a bar shows, with a clock that the test sets."""

import pytest

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
def bar(clock):
    with progress_bar(1000, "step", clock=clock) as bar:
        yield bar


def advance(bar, clock, seconds, updates=1, **options):
    for _ in range(updates):
        clock.seconds += seconds
        bar.update(**options)


def test_compiling_is_shown_until_an_update_runs_at_full_speed(bar, clock):
    assert "<compiling]" in str(bar)
    advance(bar, clock, 8.0)  # the first update always compiles
    advance(bar, clock, 7.0, updates=3, compiling=True)
    bar.set_postfix_str("loss 3.21")
    assert "4/1000" in str(bar)
    assert "<compiling, loss 3.21]" in str(bar)
    advance(bar, clock, 0.5)
    assert "5/1000" in str(bar)
    assert "<08:17," in str(bar)  # 995 updates of 0.5 s
    assert "2.00step/s" in str(bar)


def test_neither_compiling_nor_a_pause_changes_the_time_left(bar, clock):
    advance(bar, clock, 8.0)
    advance(bar, clock, 0.5, updates=10)
    advance(bar, clock, 9.0, compiling=True)
    clock.seconds += 120.0
    bar.exclude_pause()
    advance(bar, clock, 0.5)
    assert "<08:13," in str(bar)  # 987 updates of 0.5 s


def test_the_time_left_follows_recent_updates(bar, clock):
    advance(bar, clock, 1.0, updates=200)
    advance(bar, clock, 0.25, updates=100)
    assert "<02:55," in str(bar)  # 700 updates of 0.25 s


def test_work_done_before_does_not_raise_the_rate(clock):
    with progress_bar(1000, "photo", done=900, clock=clock) as bar:
        advance(bar, clock, 3.0)
        advance(bar, clock, 1.0, updates=19)
        assert "920/1000" in str(bar)
        assert "<01:20," in str(bar)


def test_units_of_several_are_counted(bar, clock):
    advance(bar, clock, 5.0, n=100)
    advance(bar, clock, 2.0, updates=2, n=100)
    assert "<00:14, 50.00step/s" in str(bar)


def test_work_done_in_one_update_shows_its_whole_time(clock):
    with progress_bar(4, "photo", clock=clock) as bar:
        advance(bar, clock, 5.0, n=4)
        assert "4/4" in str(bar)
        assert "compiling" not in str(bar)


def test_a_hidden_bar_writes_nothing(clock, capsys):
    with progress_bar(3, "step", shown=False, clock=clock) as bar:
        advance(bar, clock, 1.0, updates=3)
        bar.set_postfix_str("loss 1.00")
        bar.exclude_pause()
    assert capsys.readouterr() == ("", "")
