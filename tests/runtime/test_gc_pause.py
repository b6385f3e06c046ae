"""The garbage collector is paused in the body, and only there."""

import gc

import pytest

from show_attend_tell.runtime.gc_pause import uncollected


def test_the_collector_is_paused_in_the_body_and_enabled_after_it():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_enabled_after_an_error():
    @uncollected()
    def fail():
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_a_collector_disabled_before_stays_disabled():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
