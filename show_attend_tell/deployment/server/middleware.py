"""Limit the size and origin of requests, and add security headers to responses."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from show_attend_tell.runtime.errors import one_line, quote

_log = logging.getLogger(__name__)

# A page may neither load from another machine nor send to it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src "
    "'self'; img-src 'self' blob: data:; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_PORT = re.compile(r":\d+\Z", re.ASCII)  # at the end of a header Host
BODY_SECONDS = 60  # seconds for the whole body of a request
SILENT_SECONDS = 10  # seconds between two parts of a body
MAX_HELD = 200_000_000  # bytes of bodies in memory, of all requests together
_SMALL = 1_000_000  # bytes of a body that is held in any case
_HELD_SECONDS = 5  # after which a request is sent again


def refusal(
    scope: Mapping[str, Any],
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error as one line of JSON, in the protocol of the request's path.

    Ollama's and PhotoPrism's paths begin with /api/, OpenAI's with /v1/. Their errors
    have no status 415 or 422, and are logged, because photo programs run without a
    person.
    """
    path = scope["path"]
    body: dict[str, object] = {"error": message}
    if path.startswith(("/api/", "/v1/")):
        status = 400 if status in (415, 422) else status
        request = f"{scope['method']} {quote(path)}"
        _log.warning("%s: %d, %s", request, status, one_line(message))
    if path.startswith("/api/v1/"):  # PhotoPrism reads the status here alone
        body["code"] = status
    if path.startswith("/v1/"):
        kind = "invalid_request_error" if status < 500 else "server_error"
        # Of a path that does not exist, the scope has no endpoint.
        code = "model_not_found" if status == 404 and "endpoint" in scope else None
        body["error"] = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse(body, status, headers)


class _TimedBody:
    """Receives the body of a request within its time limits."""

    def __init__(self, receive: Receive):
        self._receive = receive
        self._end = asyncio.get_running_loop().time() + BODY_SECONDS
        self._is_whole = False

    async def __call__(self) -> Message:
        """Return the next message; that of a client that leaves may take for ever.

        Raises:
            HTTPException: the body is late.
        """
        # After the body a message comes only when the client leaves; it has no time
        # limit.
        if self._is_whole:
            return await self._receive()
        # The first limit ends a client that stops, the second one that sends a byte now
        # and then.
        silent = asyncio.get_running_loop().time() + SILENT_SECONDS
        try:
            async with asyncio.timeout_at(min(silent, self._end)):
                message = await self._receive()
        except TimeoutError:
            reason = "the request did not arrive in time; send it again"
            raise HTTPException(408, reason, {"Connection": "close"}) from None
        self._is_whole = not message.get("more_body", False)
        return message


async def _discard(receive: Receive) -> None:
    """Read the rest of a body, until it is late."""
    message: Message = {"more_body": True}
    while message.get("more_body"):
        try:
            message = await receive()
        except HTTPException:  # it is late
            return


async def _refuse(
    status: int, message: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Respond with one line of JSON and close the connection."""
    headers = {"Connection": "close", **_HEADERS}
    await refusal(scope, status, message, headers)(scope, receive, send)


async def _refuse_unread(
    status: int, message: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Respond as `_refuse` does to a request whose body nobody has read.

    The connection stays open while the body arrives: many clients read no response
    before they have sent everything, and a closed connection takes it from them.
    """

    async def send_before_end(part: Message) -> None:
        # With `more_body` the server keeps the connection open; the empty part ends it.
        if part["type"] == "http.response.body":
            await send({**part, "more_body": True})
            await _discard(receive)
            part = {"type": "http.response.body", "body": b""}
        await send(part)

    await _refuse(status, message, scope, receive, send_before_end)


class Guard:
    """Middleware that refuses requests before they are handled, and adds headers.

    It refuses large and late bodies, bodies that together would fill the memory, and
    requests to other hosts or from the pages of other servers: otherwise a page of
    another site could send its visitors' requests to this server.

    Args:
        app: the application.
        hosts: accepted values of the header Host, without a port; ``*`` accepts all.
        max_bytes: bytes of the largest body.
        message: error message for a larger body.
    """

    def __init__(
        self, app: ASGIApp, hosts: Sequence[str], max_bytes: int, message: str
    ):
        self.app = app
        self.hosts = hosts
        self.max_bytes = max_bytes
        self.message = message
        self._held = 0  # bytes of the bodies of all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # From here on every reader of the body is limited, those of refused requests
        # too.
        receive = _TimedBody(receive)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        host = headers.get("host", "")
        # Behind a proxy with TLS the scheme is https: Uvicorn reads X-Forwarded-Proto.
        server = f"{scope['scheme']}://{host}".lower()
        # Browsers add Origin to the requests of a page; other programs do not.
        origins = headers.getlist("origin")
        origin = next((o for o in origins if o.lower() != server), None)
        if not self._is_own(host):
            message = (
                f"`Host` must be one of {', '.join(self.hosts)}. "
                f"Received: {quote(host, 100)}; call the server by one of these names"
            )
            await _refuse_unread(400, message, scope, receive, send)
        elif origin is not None:
            message = (
                "`Origin` must be absent or this server. "
                f"Received: {origin[:100]!r}; use this server's own page"
            )
            await _refuse_unread(403, message, scope, receive, send)
        # A chunked body has no length; its bytes are counted while it is read.
        elif length.isdigit() and int(length) > self.max_bytes:
            await _refuse_unread(413, self.message, scope, receive, send)
        else:
            await self._run(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        """Return whether a header Host names this server, with a port or without."""
        return "*" in self.hosts or _PORT.sub("", host.lower()) in self.hosts

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; a server that stops ends it with status 503."""
        received = 0
        started = False

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            size = len(message.get("body", b""))
            received += size
            # Added before the limits are compared; `finally` below takes all of it
            # back.
            self._held += size
            if received > self.max_bytes:
                refused = HTTPException(413, self.message)
            # Small requests go on, so that the page stays usable while photos are
            # refused.
            elif self._held > MAX_HELD and received > _SMALL:
                again = {"Retry-After": str(_HELD_SECONDS)}
                text = (
                    f"busy with other photos; send it again in {_HELD_SECONDS} seconds"
                )
                refused = HTTPException(503, text, again)
            else:
                return message
            # As in `_refuse_unread`: the client reads the refusal when it has sent all.
            if message.get("more_body"):
                await _discard(receive)
            # In the application, which turns it into a response as any other error.
            raise refused

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            await self.app(scope, counting_receive, send_with_headers)
        except asyncio.CancelledError:
            # A response that has begun cannot become another one.
            if started:
                raise
            message = "the server is stopping; send the request again later"
            await _refuse(503, message, scope, receive, send)
        finally:
            self._held -= received
