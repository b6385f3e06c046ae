"""The server in a process of its own, and a small client."""

import base64
import contextlib
import http.client
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START = 180  # seconds that the server may take to start
_BOUNDARY = "torture"


@dataclass
class Reply:
    """An answer of the server; status 0 if the connection broke."""

    status: int
    body: bytes
    seconds: float
    headers: dict[str, str]

    @property
    def error(self) -> str:
        """The one line of a refusal, or what is wrong with the answer."""
        try:
            error = json.loads(self.body)["error"]
            return error["message"] if isinstance(error, dict) else error
        except (ValueError, KeyError, TypeError):
            return f"no line: {self.body[:60]!r}"


class Server:
    """A running server.

    Attributes:
        port: its port on 127.0.0.1.
        err: file of its standard error.
    """

    def __init__(self, process: subprocess.Popen, port: int, err: Path):
        self.process, self.port, self.err = process, port, err

    def megabytes(self, peak: bool = False) -> float:
        """Return the memory it takes, or took at most."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        name = "VmHWM:" if peak else "VmRSS:"
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        return int(line.split()[1]) / 1024

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        seconds: float = 60,
    ) -> Reply:
        """Send one request on a connection of its own."""
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, seconds)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
            taken = time.monotonic() - start
            return Reply(answer.status, content, taken, dict(answer.getheaders()))
        except (OSError, http.client.HTTPException) as error:
            taken = time.monotonic() - start
            return Reply(0, repr(error).encode(), taken, {})
        finally:
            connection.close()

    def post(
        self,
        photo: bytes,
        name: bytes = b"a.jpg",
        headers=None,
        path="/caption",
        **options,
    ) -> Reply:
        """Post a photo as a form."""
        body = form(photo, name, options)
        kind = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
        return self.request("POST", path, body, kind | (headers or {}))


def ollama_body(*photos, **fields):
    """Return a body of Ollama's protocol; its photos are base64."""
    return {"model": "tiny", "prompt": "Why?", "images": list(photos), **fields}


def chat_body(*photos, **fields):
    """Return a body of Ollama's chat; its photos are base64."""
    message = {"role": "user", "content": "Why?", "images": list(photos)}
    return {"model": "tiny", "messages": [message], **fields}


def completion_body(*photos, **fields):
    """Return a body of OpenAI's chat; its photos are URLs."""
    parts = [{"type": "image_url", "image_url": {"url": photo}} for photo in photos]
    content = [{"type": "text", "text": "Why?"}, *parts]
    message = {"role": "user", "content": content}
    return {"model": "tiny", "messages": [message], **fields}


def said(role, *content):
    """Return a message in OpenAI's responses."""
    return {"role": role, "type": "message", "content": list(content)}


def response_body(*photos, **fields):
    """Return a body of OpenAI's responses; its photos are URLs."""
    parts = [{"type": "input_image", "image_url": photo} for photo in photos]
    message = said("user", {"type": "input_text", "text": "Why?"}, *parts)
    return {"model": "tiny", "input": [message], **fields}


BODIES = {
    "/api/generate": ollama_body,
    "/api/chat": chat_body,
    "/v1/chat/completions": completion_body,
    "/v1/responses": response_body,
}


def queries(photo: bytes, model: str) -> dict[str, bytes]:
    """Return the bodies that ask Ollama and OpenAI for a photo's caption, by path."""
    text = base64.b64encode(photo).decode()
    url = f"data:image/jpeg;base64,{text}"
    return {
        path: json.dumps(body(text if "/api/" in path else url, model=model)).encode()
        for path, body in BODIES.items()
    }


def form(photo: bytes, name: bytes, options: dict[str, object]) -> bytes:
    """Return the body of a form with a photo."""
    safe = name.replace(b'"', b"%22").replace(b"\r", b"%0D").replace(b"\n", b"%0A")
    parts = b"".join(
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n'
        f"{value}\r\n".encode()
        for key, value in options.items()
    )
    head = b'Content-Disposition: form-data; name="photo"; filename="' + safe
    return (
        parts
        + f"--{_BOUNDARY}\r\n".encode()
        + head
        + b'"\r\nContent-Type: image/jpeg\r\n\r\n'
        + photo
        + f"\r\n--{_BOUNDARY}--\r\n".encode()
    )


@contextlib.contextmanager
def running(world, folder: Path, *more: str) -> Iterator[Server]:
    """Serve the world's model on a free port; stop by SIGINT, as Ctrl-C does."""
    err = folder / "server.err"
    command = [sys.executable, "-m", "show_attend_tell", "demo", str(world.model)]
    with err.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--port", "0", *more],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:
        yield Server(process, _port(process, err), err)
    finally:
        process.send_signal(2)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _port(process: subprocess.Popen, err: Path) -> int:
    """Return the port that the server prints."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    ready = selector.select(START)
    line = process.stdout.readline().decode() if ready else ""
    assert "http://" in line, f"no server: {line!r} {err.read_text()[-2000:]}"
    return int(line.split(" - ")[0].rpartition(":")[2].strip("/ "))


def wait_until_ready(server: Server) -> None:
    """Wait until the page is served."""
    until = time.monotonic() + START
    while server.request("GET", "/about", seconds=5).status != 200:
        assert time.monotonic() < until, server.err.read_text()[-2000:]
        time.sleep(0.2)
