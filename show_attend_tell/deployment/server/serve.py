"""Serve an application on a port until Ctrl-C; limit its connections and their time."""

import asyncio
import contextvars
import errno
import functools
import json
import logging
import os
import re
import socket

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from show_attend_tell.deployment.server.middleware import BODY_SECONDS
from show_attend_tell.runtime.errors import SetupError, one_line, quote

MAX_CONNECTIONS = 256  # served at a time; as many more get status 503
MAX_PIPELINED = 16  # requests of one connection that wait for their responses
IDLE_SECONDS = 10  # seconds between two requests of a connection
HEAD_SECONDS = 10  # seconds for the whole head of a request
# Longer than `BODY_SECONDS`, after which a request whose body is read gets status 408:
# this limit is for bodies that nobody reads.
REQUEST_SECONDS = BODY_SECONDS + 10
READ_SECONDS = 60  # seconds that a client may take to read a part of a response
MAX_HEAD = 65_536  # bytes of a request's head, or between two parts of its body
# Offers of another protocol, by Java and `curl --http2`, are ignored, because httptools
# drops the body of such a request.
_OFFER = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_OF_PORT = (errno.EADDRINUSE, errno.EACCES)  # what may be wrong with a port
_CROWDED = "too many connections; send the request again later"
_LARGE = f"the head of a request must have at most {MAX_HEAD} bytes; make it smaller"


def take_port(host: str, port: int) -> socket.socket:
    """Open a port; call it before loading models, so that an error comes early.

    Raises:
        SetupError: the port is in use or not allowed, or the host is another machine.
    """
    # create_server takes IPv4 unless it is told otherwise.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    # A host that is no name, such as one of 64 letters: UnicodeError, or TypeError.
    except (OSError, TypeError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in _OF_PORT:
            raise SetupError(
                f"`port` must be free on {host}. Received: {port} "
                f"({os.strerror(number)}); choose another with --port"
            ) from None
        raise SetupError(
            f"`host` must be an address of this machine. Received: {quote(host)} "
            f"({one_line(error)}); choose another with --host"
        ) from None


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Build the server of an application; its ``run(sockets=[...])`` blocks."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.ERROR)  # malformed requests are warnings
    logger.addFilter(_is_unexpected)
    config = uvicorn.Config(
        # Around the middleware too, whose refusals are responses as well.
        _count_responses(app),
        # Called as a class is.
        http=functools.partial(LimitedConnection, open_connections=set()),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Return False for Uvicorn's messages about requests that Ctrl-C ends."""
    error = record.exc_info[1] if record.exc_info else None
    counted = str(record.msg).startswith("Cancel %s running task(s)")
    return not counted and not isinstance(error, asyncio.CancelledError)


# The connection of the request that a task handles: ASGI has no name for it.
_connection: contextvars.ContextVar["LimitedConnection"] = contextvars.ContextVar(
    "connection"
)


def _count_responses(app: ASGIApp) -> ASGIApp:
    """Return an application that tells a connection of each response that ended."""

    async def counting_app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            _connection.get().response_ended()

    return counting_app


class LimitedConnection(HttpToolsProtocol):
    """HTTP/1.1 connection with limits that Uvicorn has no settings for.

    The head of a request must arrive in time and within a size, its client must read
    the response, and few requests may wait on one connection. The time of a body that
    is read is limited by :class:`middleware.Guard`.

    Only methods of ``asyncio.Protocol`` and callbacks of httptools' parser, which are
    public interfaces, are overridden, and no attribute of Uvicorn's is read. Names with
    two underscores cannot collide with those attributes.
    """

    def __init__(self, *, open_connections: set, **arguments):
        """Take the open connections of this server, and Uvicorn's own arguments."""
        super().__init__(**arguments)
        self.__open = open_connections
        self.__is_crowded = False
        self.__arrival: asyncio.TimerHandle | None = None
        self.__reading: asyncio.TimerHandle | None = None
        self.__is_head = True  # whether the next bytes belong to a request's head
        self.__unused = 0  # bytes received since the last part of a request
        self.__waiting = 0  # requests without a complete response

    def connection_made(  # type: ignore[override]  # a Transport, as Uvicorn's
        self, transport: asyncio.Transport
    ) -> None:
        """Start the time limit of the first request; refuse too many connections."""
        super().connection_made(transport)
        self.__transport = transport
        # With 0, `pause_writing` is called whenever the client reads too slowly.
        transport.set_write_buffer_limits(high=0)
        # Counted here, as a connection that has sent nothing takes a place too.
        self.__open.add(self)
        self.__is_crowded = len(self.__open) > MAX_CONNECTIONS
        if len(self.__open) > 2 * MAX_CONNECTIONS:
            transport.abort()
        else:
            self.__expect(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limits."""
        self.__open.discard(self)
        self.__expect_nothing()
        # Stops the timer of the client's reading.
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle bytes, unless too many make no part of a request."""
        if self.__is_crowded:
            self.__refuse("503 Service Unavailable", _CROWDED, b"retry-after: 10\r\n")
            return
        _connection.set(self)  # the task that handles a request inherits it
        # Callbacks of the parser set it to 0 whenever the bytes become a part of a
        # request. Without end are a header, a trailer and the extension of a chunk.
        self.__unused += len(data)
        if self.__is_head:
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(b"\r\nignored-upgrade:", head) + end + body
        super().data_received(data)
        # The parser may have refused the bytes and closed the connection already.
        if self.__unused > MAX_HEAD and not self.__transport.is_closing():
            self.__refuse("431 Request Header Fields Too Large", _LARGE)

    def pause_writing(self) -> None:
        """Start the time limit of the client's reading."""
        super().pause_writing()
        loop = asyncio.get_running_loop()
        # abort, as close would wait until the client has read the rest.
        self.__reading = loop.call_later(READ_SECONDS, self.__transport.abort)

    def resume_writing(self) -> None:
        """Stop the time limit of the client's reading."""
        super().resume_writing()
        if self.__reading is not None:
            self.__reading.cancel()
            self.__reading = None

    def on_message_begin(self) -> None:
        """Start the time limit of a head."""
        self.__unused = 0
        self.__expect(HEAD_SECONDS)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the time limit of a body, unless too many requests wait."""
        self.__is_head = False
        self.__unused = 0
        self.__expect(REQUEST_SECONDS)
        # `response_ended` takes it back.
        self.__waiting += 1
        if self.__waiting > MAX_PIPELINED:
            self.__transport.abort()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that the bytes received are of use."""
        self.__unused = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the time limit of the request."""
        # The next bytes are the head of another request of this connection.
        self.__is_head = True
        self.__unused = 0
        # Between requests Uvicorn's own limit holds, `timeout_keep_alive`.
        self.__expect_nothing()
        super().on_message_complete()

    def response_ended(self) -> None:
        """Note that one request less waits for its response."""
        self.__waiting -= 1

    def __expect(self, seconds: float) -> None:
        """Close the connection unless the part of the request arrives in time."""
        self.__expect_nothing()
        loop = asyncio.get_running_loop()
        self.__arrival = loop.call_later(seconds, self.__transport.close)

    def __expect_nothing(self) -> None:
        if self.__arrival is not None:
            self.__arrival.cancel()
            self.__arrival = None

    def __refuse(self, status: str, reason: str, headers: bytes = b"") -> None:
        """Respond to what is no complete request, and close the connection."""
        body = json.dumps({"error": reason}).encode()
        # Written by hand: there is no request that Uvicorn could respond to.
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
        )
        self.__transport.write(head.encode() + headers + b"\r\n" + body)
        self.__transport.close()
