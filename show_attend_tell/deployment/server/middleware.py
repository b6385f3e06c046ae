"""Limit the size and origin of requests, and add security headers to responses."""

import asyncio
import logging
from collections.abc import Mapping

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
_DISCARDED = 2**28  # bytes read of the body of a refused request
BODY_SECONDS = 60  # seconds for the whole body of a request
SILENT_SECONDS = 10  # seconds between two parts of a body


def refusal(
    scope: Scope, status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as one line of JSON, in the protocol of the request's path.

    Ollama's paths begin with /api/, OpenAI's with /v1/. Their errors have no status 415
    or 422, and are logged, because photo programs run without a person.
    """
    path, body = scope["path"], {"error": message}
    if path.startswith(("/api/", "/v1/")):
        status = 400 if status in (415, 422) else status
        request = f"{scope['method']} {quote(path)}"
        _log.warning("%s: %d, %s", request, status, one_line(message))
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
        if self._is_whole:
            return await self._receive()
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
    """Read the whole body; a client that cannot finish sending misses the response."""
    left = _DISCARDED
    while left > 0:
        try:
            message = await receive()
        except HTTPException:  # it is late
            return
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


async def _refuse(
    status: int, message: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Respond with one line of JSON and close the connection."""
    headers = {"Connection": "close", **_HEADERS}
    await refusal(scope, status, message, headers)(scope, receive, send)


class Guard:
    """Middleware that refuses requests before they are handled, and adds headers.

    It refuses large and late bodies and requests from the pages of other servers:
    otherwise a page of another site could send its visitors' requests to this server.

    Args:
        app: the application.
        max_bytes: bytes of the largest body.
        message: error message for a larger body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, message: str):
        self.app, self.max_bytes, self.message = app, max_bytes, message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        receive = _TimedBody(receive)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        server = f"{scope['scheme']}://{headers.get('host', '')}".lower()
        # Browsers add Origin to the requests of a page; other programs do not.
        origins = headers.getlist("origin")
        origin = next((o for o in origins if o.lower() != server), None)
        if origin is not None:
            await _discard(receive)
            message = (
                "`Origin` must be absent or this server. "
                f"Received: {origin[:100]!r}; use this server's own page"
            )
            await _refuse(403, message, scope, receive, send)
        elif length.isdigit() and int(length) > self.max_bytes:
            await _discard(receive)
            await _refuse(413, self.message, scope, receive, send)
        else:
            await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; a server that stops ends it with status 503."""
        received, started = 0, False

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                if message.get("more_body"):
                    await _discard(receive)
                raise HTTPException(413, self.message)
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            await self.app(scope, counting_receive, send_with_headers)
        except asyncio.CancelledError:
            if started:
                raise
            message = "the server is stopping; send the request again later"
            await _refuse(503, message, scope, receive, send)
