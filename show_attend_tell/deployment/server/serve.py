"""Serve an application on a port of this machine until Ctrl-C."""

import asyncio
import logging
import socket

import uvicorn
from fastapi import FastAPI

from show_attend_tell.deployment.server.connections import LimitedProtocol
from show_attend_tell.runtime.errors import PortError


def take_port(host: str, port: int) -> socket.socket:
    """Open a port; call it before loading models, so that an error comes early.

    Raises:
        PortError: the port is in use or not allowed, or the host is another machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    # A host that is no name, such as one of 64 letters: UnicodeError, or TypeError.
    except (OSError, OverflowError, TypeError, UnicodeError) as error:
        raise PortError(
            f"`port` must be free on {host}. Received: {port} ({error}); choose "
            "another with --port"
        ) from None


def server_of(app: FastAPI) -> uvicorn.Server:
    """Build the server of an application; its ``run(sockets=[...])`` blocks."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.ERROR)  # malformed requests are warnings
    logger.addFilter(_is_unexpected)
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Return False for Uvicorn's messages about requests that Ctrl-C ends."""
    error = record.exc_info[1] if record.exc_info else None
    counted = str(record.msg).startswith("Cancel %s running task(s)")
    return not counted and not isinstance(error, asyncio.CancelledError)
