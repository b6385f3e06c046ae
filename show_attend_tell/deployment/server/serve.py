"""Serve an application on a port until Ctrl-C; limit its connections and their time."""

import asyncio
import json
import logging
import math
import socket

import h11
import uvicorn
from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from show_attend_tell.runtime.errors import PortError

MAX_CONNECTIONS = 256  # served at a time; as many more get status 503
READ_SECONDS = 60  # seconds that a client may take to read a part of a response
SILENT_SECONDS = 10  # seconds between two parts of a request
# Seconds for the whole head and for the whole body of a request.
_SECONDS = {h11.IDLE: 10, h11.SEND_BODY: 60}
_LATE = {"error": "the request did not arrive in time; send it again"}
_CROWDED = {"error": "too many connections; send the request again later"}


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


async def _refuse_crowd(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond that there are too many connections."""
    headers = {"Retry-After": "10", "Connection": "close"}
    await JSONResponse(_CROWDED, 503, headers)(scope, receive, send)


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 connection with time limits for its requests and responses.

    Uvicorn's settings limit only the time between two requests of a connection. A slow
    client could otherwise hold every connection open, so this class overrides the
    protocol, whose attributes are not a public interface of Uvicorn.
    """

    _timer: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _state: type | None = None  # of the client: sending the head, the body, or done
    _end = math.inf  # time at which this state must have ended

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time limit of the first request; refuse too many connections."""
        super().connection_made(transport)
        # With 0, `pause_writing` is called whenever the client reads too slowly.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > 2 * MAX_CONNECTIONS:
            transport.abort()
        elif len(self.connections) > MAX_CONNECTIONS:
            self.app = _refuse_crowd
        self._restart_timer()

    def pause_writing(self) -> None:
        """Start the time limit of the client's reading."""
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the time limit of the client's reading."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def data_received(self, data: bytes) -> None:
        """Handle bytes and restart the time limit."""
        super().data_received(data)
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limits."""
        super().connection_lost(exc)
        self.resume_writing()
        self._stop_timer()

    def _restart_timer(self) -> None:
        state, now = self.conn.their_state, self.loop.time()
        if state is not self._state:
            self._state, self._end = state, now + _SECONDS.get(state, math.inf)
        self._stop_timer()
        if state in _SECONDS and not self.transport.is_closing():
            end = min(self._end, now + SILENT_SECONDS)
            self._timer = self.loop.call_at(end, self._close_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_late(self) -> None:
        """Close the connection; a request without a response gets status 408."""
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.SEND_RESPONSE:
            self.cycle.disconnected = True  # the application's response is not sent
            body = json.dumps(_LATE).encode()
            headers = [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("Connection", "close"),
            ]
            response = h11.Response(status_code=408, headers=headers)
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()
