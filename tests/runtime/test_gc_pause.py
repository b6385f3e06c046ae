"""The garbage collector is paused in the body, and only there."""

import contextlib
import gc

import pytest

from show_attend_tell.runtime.gc_pause import uncollected


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_is_paused_in_the_body_and_as_before_after_it(enabled, fails):
    @uncollected()
    def body():
        assert not gc.isenabled()
        if fails:
            raise KeyError

    if not enabled:
        gc.disable()
    try:
        with contextlib.suppress(KeyError):
            body()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
