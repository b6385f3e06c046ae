"""What every request passes first: a limit of size, and headers that keep pages in."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing may be loaded from, or sent to, another machine.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src "
    "'self'; img-src 'self' blob: data:; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_DISCARDED = 2**28  # bytes of a body that is too large are read, to be thrown away


async def _discard(receive: Receive) -> None:
    """Read the rest of a body; a sender who cannot send it misses the answer."""
    left = _DISCARDED
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


class Guard:
    """Middleware that refuses large bodies before they are stored, and adds headers.

    Args:
        app: what it guards.
        most: the largest body in bytes.
        message: for the sender of a larger one.
    """

    def __init__(self, app: ASGIApp, most: int, message: str):
        self.app, self.most, self.message = app, most, message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most:
                if message.get("more_body"):
                    await _discard(receive)
                raise HTTPException(413, self.message)
            return message

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self.most:
            await _discard(receive)
            answer = JSONResponse(
                {"error": self.message}, 413, {"Connection": "close", **_HEADERS}
            )
            await answer(scope, receive, send)
            return
        await self.app(scope, counted, headed)
