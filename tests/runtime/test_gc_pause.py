"""The collector is held off while captions are read, and only then."""

import gc

import pytest

from show_attend_tell.runtime.gc_pause import uncollected


def test_the_collector_rests_in_the_body_and_works_again_after_it():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_an_error():
    @uncollected()
    def fail():
        assert not gc.isenabled()
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_whoever_had_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
