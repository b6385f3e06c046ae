"""Define the settings of DRAW, which reads and writes with Gaussian filters.

The equations are in :mod:`show_attend_tell.siblings.draw`.
"""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, Positive

Steps = Annotated[int, Field(ge=1, le=1000)]
# At least two filters: the distance of the centres is divided by N - 1.
Filters = Annotated[int, Field(ge=2, le=1000)]
# e^20 exceeds any picture, and its square still fits 32 bits.
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
        attention: whether to read and write with windows; without windows both use the
            whole picture, and ``read`` and ``write`` are ignored.
        canvas_start: initial value of every pixel of c_0, a learned log-odds.
        log_variance_limit: largest absolute value of log sigma^2 of the filters.
        log_scale_limit: largest absolute value of log delta~ and of log gamma.
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
        log_scale_limit: see :class:`DrawSettings`.
    """

    steps: Steps = 8
    read: Filters = 12
    width: Positive = 256
    log_variance_limit: Limit = 12.0
    log_scale_limit: Limit = 8.0
