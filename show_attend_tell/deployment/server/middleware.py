"""Limit the size of every request, and add security headers to every response."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A page may neither load from another machine nor send to it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src "
    "'self'; img-src 'self' blob: data:; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_DISCARDED = 2**28  # bytes read of a body that is too large


async def _discard(receive: Receive) -> None:
    """Read the rest of a body; a client that cannot send it all misses the response."""
    left = _DISCARDED
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


class Guard:
    """Middleware that refuses large bodies before they are stored, and adds headers.

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
        received = 0

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
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self.max_bytes:
            await _discard(receive)
            response = JSONResponse(
                {"error": self.message}, 413, {"Connection": "close", **_HEADERS}
            )
            await response(scope, receive, send)
            return
        await self.app(scope, counting_receive, send_with_headers)
