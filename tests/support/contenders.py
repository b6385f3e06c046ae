"""Define contenders that the processes of benchmarks.turns can import."""

import os

from benchmarks.turns import Work


def prepare(answer):
    """A contender whose burst of two units took six seconds by its own clock."""
    return Work(run=lambda: 6.0, units=2, facts=lambda: {"answer": answer})


def fail():
    raise ValueError("of no use")


def double(number):
    return {"double": 2 * number, "seen": os.environ.get("SEEN")}
