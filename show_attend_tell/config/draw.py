"""Define the settings of DRAW, which reads and writes by a window of Gaussian filters.

The equations are in :mod:`show_attend_tell.siblings.draw`.
"""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, Positive

Steps = Annotated[int, Field(ge=1, le=1000)]
# Two filters at least: the distance of the centres is divided by N - 1.
Filters = Annotated[int, Field(ge=2, le=1000)]
# e^20 is beyond any picture, and its square is still a number of 32 bits.
Limit = Annotated[float, Field(gt=0, le=20)]


@dataclass(frozen=True, config=STRICT)
class DrawSettings:
    """A DRAW network that generates pictures, arXiv:1502.04623.

    Attributes:
        steps: T, additions to the canvas.
        read: N of the window that reads, N x N filters.
        write: N of the window that writes.
        latent: width of z_t.
        width: width of both LSTMs.
        attention: whether reading and writing use windows; without them both see the
            whole picture, and ``read`` and ``write`` are ignored.
        canvas_start: initial value of every pixel of c_0, a learned log-odds.
        log_variance_limit: log sigma^2 of the filters is clipped to this distance
            from 0.
        log_scale_limit: log delta~ and log gamma are clipped to this distance from 0.
    """

    steps: Steps = 10
    read: Filters = 5
    write: Filters = 5
    latent: Positive = 50
    width: Positive = 256
    attention: bool = True
    canvas_start: Annotated[float, Field(ge=-20, le=20)] = -2.0
    log_variance_limit: Limit = 12.0
    log_scale_limit: Limit = 8.0


@dataclass(frozen=True, config=STRICT)
class DrawReaderSettings:
    """A classifier that reads with DRAW's window: Sec. 4.1 of arXiv:1502.04623.

    Attributes:
        steps: T, glimpses.
        read: N of the window, N x N filters.
        width: width of the LSTM.
        log_variance_limit: see :class:`DrawSettings`.
        log_scale_limit: see the same class.
    """

    steps: Steps = 8
    read: Filters = 12
    width: Positive = 256
    log_variance_limit: Limit = 12.0
    log_scale_limit: Limit = 8.0
