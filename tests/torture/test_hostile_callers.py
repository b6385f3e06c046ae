"""Hostile photos, requests and callers, sent to the server over HTTP."""

import os
import random
import socket
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import command_line
import hostile_photos
import mutations
import pytest
import server_process
from tally import Tally, scaled
from world import photo_bytes

from show_attend_tell.runtime import plugins

DAMAGED = 330
CLIENTS = 50
LOAD = 60  # seconds
ROOM = 400  # MB that the server may grow by


@pytest.fixture(scope="module")
def server(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with server_process.running(world, folder) as running:
        server_process.wait_until_ready(running)
        yield running


def _has_tabs() -> bool:
    return any(not tab.missing() for tab in plugins.tabs())


def _judge(reply, server) -> tuple[str, str]:
    """Judge an answer to a hostile request."""
    if reply.status == 0:
        return "failed", "no answer: " + command_line.general(reply.body.decode())
    if reply.status >= 500 and reply.status != 503:
        return "failed", f"status {reply.status}: {_last_traceback(server)}"
    if reply.status == 200:
        return "handled", ""
    if reply.error.startswith("no line"):
        return "failed", f"status {reply.status} without a line"
    if "\n" in reply.error or len(reply.error) > 2000:
        return "failed", f"status {reply.status}: a refusal of more than one line"
    return "refused", ""


def _last_traceback(server) -> str:
    lines = server.err.read_text(errors="replace").splitlines()
    return command_line.general(lines[-1]) if lines else ""


@pytest.mark.parametrize(
    ("path", "planned", "damaged"),
    [("/caption", 500, DAMAGED), ("/digits/classify", 150, 60), ("/read", 150, 60)],
)
def test_photos_posted(server, world, path, planned, damaged):
    """A whole photo is captioned; other models may refuse what they do not see."""
    if path != "/caption" and not _has_tabs():
        pytest.skip("the package has no such plug-in")
    tally = Tally(f"hostile photos, POST {path}", scaled(planned), 30)
    photos, whole = hostile_photos.corpus(scaled(damaged))
    bombs = set(map(str.encode, hostile_photos.bombs()))
    for name, content in tally.within_time(photos.items()):
        reply = server.post(content, name, path=path)
        outcome, signature = _judge(reply, server)
        if path != "/caption":
            if reply.status not in (200, 413, 415, 422):
                outcome, signature = "failed", f"status {reply.status}: {reply.error}"
        elif outcome == "refused" and name in whole:
            reason = command_line.general(reply.error.partition("bytes, ")[2])
            outcome, signature = "failed", f"a whole photo refused: {reason}"
        elif outcome == "refused" and reply.status != 413 and name in bombs:
            text = command_line.general(reply.error)
            outcome, signature = "failed", f"{reply.status} in place of 413: {text}"
        if world.mark.exists():
            world.mark.unlink()
            outcome, signature = "failed", "Ghostscript was started"
        case = f"POST {path}, {os.fsdecode(name)!r}, {reply.status}"
        tally.count(case, outcome, signature)


def _odd_requests():
    """Yield description, arguments of a request and the statuses that are right."""
    photo = server_process.form(photo_bytes(1), b"a.jpg", {})
    kind = {"Content-Type": "multipart/form-data; boundary=torture"}
    for path in ("/", "/about", "/static/demo.js"):
        yield f"HEAD {path}", ("HEAD", path), {200}
    yield "DELETE /", ("DELETE", "/"), {405}
    for path in ("/../../etc/passwd", "/static/../app.py", "/static/..%2f..%2fapp.py"):
        yield path, ("GET", path), {400, 404}
    yield "/static/%00", ("GET", "/static/%00"), {400, 404}
    yield "/examples/999", ("GET", "/examples/999"), {404}
    yield "/examples/" + "9" * 5000, ("GET", "/examples/" + "9" * 5000), {404, 422}
    yield "a path of 60,000 letters", ("GET", "/" + "a" * 60_000), {400, 404, 414}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        headers = kind | {"Origin": origin}
        yield f"Origin: {origin}", ("POST", "/caption", photo, headers), {400, 403}
    for host in ("evil.example", "evil.example:8000", "", "127.0.0.1.evil.example"):
        headers = kind | {"Host": host}
        yield f"Host: {host!r}", ("POST", "/caption", photo, headers), {400, 403}
    for text in ("boundary=", "boundary=" + "x" * 5000, "charset=utf-9", ""):
        headers = {"Content-Type": f"multipart/form-data; {text}"}
        what = f"multipart/form-data; {text[:30]}"
        yield what, ("POST", "/caption", photo, headers), {400, 422}
    for form in ("application/json", "text/plain", "image/jpeg"):
        headers = {"Content-Type": form}
        yield form, ("POST", "/caption", b"{}", headers), {400, 415, 422}
    many = photo[:-13] + b"".join(
        b'\r\n--torture\r\nContent-Disposition: form-data; name="a"\r\n\r\nb'
        for _ in range(3000)
    )
    many += b"\r\n--torture--\r\n"
    yield "3,000 fields", ("POST", "/caption", many, kind), {400, 413, 422}
    large = server_process.form(bytes(25_000_000), b"a.jpg", {})
    yield "25 MB", ("POST", "/caption", large, kind), {413}
    odd = ("beam", "0"), ("beam", "-1"), ("beam", "9" * 5000), ("beam", "nan")
    odd += ("temperature", "nan"), ("temperature", "inf"), ("temperature", "0")
    odd += ("seed", "-1"), ("seed", str(2**31)), ("model", "../../outside")
    odd += ("method", "x"), ("locations", "x" * 5000), ("beam", "1e1"), ("seed", "1.5")
    if _has_tabs():
        for value in ("-1", str(2**31), "nan", "9" * 5000, "1.5", ""):
            yield f"seed={value[:20]}", ("GET", f"/digits/draw?seed={value}"), {422}
        yield "POST of no drawing", ("POST", "/digits/classify", b"", kind), {400, 422}
    for key, value in odd:
        body = server_process.form(photo_bytes(1), b"a.jpg", {key: value})
        yield f"{key}={value[:20]}", ("POST", "/caption", body, kind), {422}


def test_malformed_requests_are_refused_with_their_status(server):
    tally = Tally("odd requests", 59, 10)
    for what, request, right in tally.within_time(_odd_requests()):
        reply = server.request(*request)
        if reply.status in right:
            tally.count(what, "handled" if reply.status == 200 else "refused")
        else:
            text = f"{what}: status {reply.status} in place of {sorted(right)}"
            tally.count(what, "failed", text)


def test_damaged_requests_cause_no_error_of_the_server(server):
    """Of an unfinished request nothing is answered; all others get their status."""
    tally = Tally("damaged requests", scaled(200), 15)
    rng = random.Random(9)
    body = server_process.form(photo_bytes(2), b"a.jpg", {"beam": 2})
    head = (
        f"POST /caption HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        "Content-Type: multipart/form-data; boundary=torture\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    first, rest = head + body[:160], body[160:]
    cases = [mutations.bytes_damaged(first, rng) for _ in range(tally.planned)]
    cases.insert(0, ("undamaged", first))
    with ThreadPoolExecutor(16) as pool:
        statuses = pool.map(lambda c: _send_raw(server.port, c[1] + rest), cases)
        for (what, _), status in tally.within_time(zip(cases, statuses, strict=True)):
            bad = status >= 500
            signature = f"status {status}: {_last_traceback(server)}" if bad else ""
            outcome = "failed" if bad else "refused" if status >= 400 else "handled"
            tally.count(what, outcome, signature)


def _send_raw(port: int, content: bytes) -> int:
    """Send bytes and return the status, 0 where none came in 3 seconds."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.settimeout(3)
        try:
            connection.sendall(content)
            answer = connection.recv(4000)
        except OSError:
            return 0
    parts = answer.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def test_bodies_in_chunks_of_one_byte_stop_no_captions(server):
    """A parser in Python spends ten seconds on each such body."""
    tally = Tally("captions beside chunks of one byte", 1, 30)
    head = (
        f"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    ).encode()
    body = b"1\r\na\r\n" * 500_000 + b"0\r\n\r\n"
    with ThreadPoolExecutor(20) as pool:
        hostile = [pool.submit(_send_raw, server.port, head + body) for _ in range(20)]
        for number in tally.within_time(range(tally.planned)):
            reply = server.post(photo_bytes(number), seconds=30)
            outcome, signature = _judge(reply, server)
            tally.count(f"{reply.status}, {reply.seconds:.1f} s", outcome, signature)
        for sent in hostile:
            sent.result()


def test_many_clients_are_served_or_sent_away_with_a_delay(server, world):
    """Of ten clients two post forms, and two each use one path of a protocol."""
    tally = Tally(f"{CLIENTS} clients", 0, LOAD + 30)
    before, until = server.megabytes(), time.monotonic() + LOAD
    replies, lock = [], threading.Lock()

    def client(number: int) -> None:
        photo = photo_bytes(number)
        posts = [partial(server.post, photo, beam=2)] + [
            partial(server.request, "POST", path, body)
            for path, body in server_process.queries(photo, world.model.stem).items()
        ]
        while time.monotonic() < until:
            reply = posts[number % len(posts)]()
            with lock:
                replies.append(reply)
            if reply.status == 503:
                time.sleep(0.2)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for reply in replies:
        outcome, signature = _judge(reply, server)
        if reply.status == 503 and not reply.headers.get("retry-after", "").isdigit():
            outcome, signature = "failed", "503 without Retry-After"
        elif reply.status not in (200, 503):
            outcome, signature = "failed", f"status {reply.status}: {signature}"
        tally.count(f"status {reply.status}: {reply.body[:200]!r}", outcome, signature)
    tally.planned, after = len(replies), server.megabytes()
    times = [reply.seconds for reply in replies if reply.status == 200]
    if len(times) < 2:
        tally.count("captions under load", "failed", "no photo was captioned")
    else:
        p99 = statistics.quantiles(times, n=100)[98]
        tally.notes.append(
            f"{CLIENTS} clients for {LOAD:.0f} s: {len(times)} captions, "
            f"{len(times) / LOAD:.1f} a second, median "
            f"{statistics.median(times):.2f} s, p99 {p99:.2f} s; memory "
            f"{before:.0f} MB before, {after:.0f} after, "
            f"{server.megabytes(peak=True):.0f} at most"
        )
    if after - before > ROOM:
        text = f"memory grew by more than {ROOM} MB"
        tally.count(f"{before:.0f} -> {after:.0f} MB", "failed", text)
    tally.finish()


def test_the_server_printed_no_traceback(server):
    tally = Tally("standard error of the server", 1, 10)
    text = server.err.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    failed = "Traceback" in text
    signature = "traceback: " + command_line.general(lines[-1]) if failed else ""
    tally.count(
        text[-600:] if failed else "", "failed" if failed else "handled", signature
    )
    tally.finish()
