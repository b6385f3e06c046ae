"""Connections: time limits, origins, and the end of the server."""

import contextlib
import http.client
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
from fastapi import FastAPI, Request
from fastapi.responses import Response
from nightly import nightly
from served import post, serving_app

from show_attend_tell.deployment.server import middleware, serve


@pytest.fixture
def short_limits(monkeypatch):
    monkeypatch.setattr(serve, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.9)
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(middleware, "SILENT_SECONDS", 0.3)


def test_the_limits_are_those_that_security_names():
    assert (serve.HEAD_SECONDS, serve.READ_SECONDS) == (10, 60)
    assert (serve.MAX_CONNECTIONS, serve.MAX_PIPELINED) == (256, 16)
    assert serve.MAX_HEAD == 2**16
    assert (middleware.BODY_SECONDS, middleware.SILENT_SECONDS) == (60, 10)


def port_of(address):
    return int(address.rpartition(":")[2])


def connect(address):
    return socket.create_connection(("127.0.0.1", port_of(address)), 10)


def head(address, more=b""):
    host = f"Host: 127.0.0.1:{port_of(address)}\r\n".encode()
    return b"POST /caption HTTP/1.1\r\n" + host + more


FORM = b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 9999\r\n\r\n"
# Starts of requests, and whether the response is one of status 408.
PARTS = {
    "nothing": (lambda address: b"", False),
    "half a line": (lambda address: b"GET / HT", False),
    "half a head": (head, False),
    "no body": (lambda address: head(address, FORM), True),
    "half a body": (lambda address: head(address, FORM) + b"--x\r\n", True),
}


def read_all(connection):
    found = b""
    while piece := connection.recv(4000):
        found += piece
    return found


def test_requests_that_stay_incomplete_are_closed(address, short_limits):
    with contextlib.ExitStack() as stack:
        opened = []
        for start, responds in [*PARTS.values()] * 20:
            connection = stack.enter_context(connect(address))
            connection.sendall(start(address))
            opened.append((connection, responds))
        assert requests.get(f"{address}/about", timeout=10).status_code == 200
        for connection, responds in opened:
            found = read_all(connection)
            assert found.startswith(b"HTTP/1.1 408 ") == responds, found
            assert (b'{"error":"the request did not arrive' in found) == responds


@pytest.mark.parametrize("part", ["half a head", "half a body"])
def test_requests_that_arrive_byte_by_byte_are_closed(address, short_limits, part):
    start, _ = PARTS[part]
    with connect(address) as connection:
        connection.sendall(start(address))
        end = time.monotonic() + 60
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() < end


def test_a_body_that_nobody_reads_does_not_keep_the_connection(address, short_limits):
    with connect(address) as connection:
        start = head(address, FORM).replace(b"POST /caption", b"GET /about")
        connection.sendall(start)
        begin = time.monotonic()
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - begin < 60


def test_a_connection_is_used_again_after_its_time_limit(address, monkeypatch):
    monkeypatch.setattr(serve, "HEAD_SECONDS", 0.4)
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.4)
    connection = http.client.HTTPConnection("127.0.0.1", port_of(address), 10)
    with contextlib.closing(connection):
        for pause in (0.5, 0):  # longer than a request may take to arrive
            connection.request("GET", "/about")
            assert connection.getresponse().read()
            time.sleep(pause)
        assert connection.sock is not None


def test_connections_above_the_limit_get_503_or_are_closed(address, monkeypatch):
    monkeypatch.setattr(serve, "MAX_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(address)) for _ in range(3)]
        refused = requests.get(f"{address}/about", timeout=10)
        assert refused.status_code == 503
        assert refused.json()["error"].startswith("too many connections")
        assert int(refused.headers["Retry-After"]) > 0
        opened += [stack.enter_context(connect(address)) for _ in range(3)]
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{address}/about", timeout=10)
        opened[0].sendall(b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert opened[0].recv(4000).startswith(b"HTTP/1.1 200 ")
    until = time.monotonic() + 60
    while requests.get(f"{address}/about", timeout=10).status_code == 503:
        assert time.monotonic() < until


LARGE = 2**24  # bytes, more than the buffers of a connection hold


def small_app():
    """Return an application that reads bodies, and has a large response."""
    found = FastAPI()
    found.add_middleware(middleware.Guard, hosts="*", max_bytes=LARGE, message="large")

    @found.post("/count")
    async def count(request: Request):
        return len(await request.body())

    @found.get("/large")
    async def large():
        return Response(bytes(LARGE))

    return found


@pytest.fixture
def small(monkeypatch):
    """The address of a small application, and its thread."""
    with serving_app(small_app()) as served:
        yield served


def test_a_client_that_never_reads_is_disconnected(small, monkeypatch):
    monkeypatch.setattr(serve, "READ_SECONDS", 0.5)
    ended, lost = threading.Event(), serve.LimitedConnection.connection_lost

    def connection_lost(self, error):
        lost(self, error)
        ended.set()

    monkeypatch.setattr(serve.LimitedConnection, "connection_lost", connection_lost)
    with connect(small[0]) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert ended.wait(30)
    large = requests.get(f"{small[0]}/large", timeout=60)
    assert len(large.content) == LARGE


def test_bodies_in_chunks_of_one_byte_cost_little_time(small):
    address, thread = small
    clock = time.pthread_getcpuclockid(thread.ident)
    count = 500_000
    chunks = b"1\r\na\r\n" * count + b"0\r\n\r\n"
    start = b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    before = time.clock_gettime(clock)
    with connect(address) as connection:
        connection.sendall(start + b"Connection: close\r\n\r\n" + chunks)
        assert read_all(connection).endswith(str(count).encode())
    assert (
        time.clock_gettime(clock) - before < 2
    )  # seconds; a parser in Python: 4 to 10


LINE = b"POST /count HTTP/1.1\r\nHost: a\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
# Requests that never end, by what they repeat.
ENDLESS = {
    "a path": (b"GET /", b"a" * 10_000),
    "a header": (LINE + b"X: ", b"a" * 10_000),
    "headers": (LINE, b"X: y\r\n" * 2000),
    "a chunk's extension": (CHUNKED + b"1;", b"a" * 10_000),
    "a trailer": (CHUNKED + b"1\r\na\r\n0\r\nX: ", b"a" * 10_000),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\n", b"X: y\r\n" * 2000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_request_without_end_is_refused_by_its_size(small, name, monkeypatch):
    monkeypatch.setattr(serve, "HEAD_SECONDS", 600)
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 600)
    start, more = ENDLESS[name]
    with connect(small[0]) as connection:
        sent = 0
        with contextlib.suppress(ConnectionError):
            connection.sendall(start)
            while sent < 100 * 65536:
                connection.sendall(more)
                sent += len(more)
    # The buffers of the connection may hold several megabytes.
    assert sent < 100 * 65536


def test_a_head_that_is_too_large_gets_431(small):
    with connect(small[0]) as connection:
        connection.sendall(LINE + b"X: ")
        for _ in range(20):
            connection.sendall(b"a" * (serve.MAX_HEAD // 16))
            time.sleep(0.01)
            if select.select([connection], [], [], 0)[0]:
                break
        found = read_all(connection)
    assert found.startswith(b"HTTP/1.1 431 ")
    assert b'{"error": "the head of a request must have at most 65536 bytes' in found


def test_a_large_head_within_the_limit_is_read(small):
    headers = {"X": "a" * (serve.MAX_HEAD - 1000)}
    reply = requests.post(f"{small[0]}/count", b"abc", headers=headers, timeout=10)
    assert (reply.status_code, reply.json()) == (200, 3)


@pytest.mark.parametrize("count", [1, serve.MAX_PIPELINED, serve.MAX_PIPELINED + 1])
def test_few_requests_of_a_connection_may_wait(small, count):
    request = LINE + b"Content-Length: 1\r\n\r\na"
    last = LINE + b"Content-Length: 1\r\nConnection: close\r\n\r\na"
    with connect(small[0]) as connection:
        connection.sendall(request * (count - 1) + last)
        try:
            found = read_all(connection)
        except ConnectionError:
            found = b""
    served = count if count <= serve.MAX_PIPELINED else 0
    assert found.count(b"HTTP/1.1 200 OK") == served


def test_requests_that_offer_another_protocol_keep_their_bodies(small):
    """Java's client and curl offer HTTP/2 with a first request."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}
    offer["HTTP2-Settings"] = "AAEAAEAA"
    with requests.Session() as session:
        for headers in (offer, {}, offer, offer):
            reply = session.post(f"{small[0]}/count", b"ab", headers=headers, timeout=9)
            assert (reply.status_code, reply.json()) == (200, 2)


def test_a_client_that_reads_slowly_gets_the_whole_response(address, monkeypatch):
    monkeypatch.setattr(serve, "READ_SECONDS", 2.0)
    expected = requests.get(f"{address}/static/demo.js", timeout=10).content
    with connect(address) as connection:
        start = head(address).replace(b"POST /caption", b"GET /static/demo.js")
        connection.sendall(start + b"Connection: close\r\n\r\n")
        found = b""
        while piece := connection.recv(500):
            found += piece
            time.sleep(0.01)
    assert found.endswith(expected)


def test_requests_from_pages_of_other_servers_are_refused(address):
    port = port_of(address)
    foreign = ("null", "", "http://evil.example", "http://127.0.0.1")
    foreign += (f"https://127.0.0.1:{port}", f"http://127.0.0.1:{port}.evil.example")
    foreign += (f"http://localhost:{port}", f"http://127.0.0.1:{port + 1}")
    foreign += ("http://evil.example\u00ff" + "x" * 3000,)
    statuses = {address: 200, None: 200} | dict.fromkeys(foreign, 403)
    for origin, status in statuses.items():
        headers = {} if origin is None else {"Origin": origin.encode("latin-1")}
        response = post(address, headers=headers)
        assert response.status_code == status, origin
        if status == 403:
            error = response.json()["error"]
            assert error.startswith("`Origin` must be absent or this server")
            assert "\n" not in error
            assert len(error) < 500


def test_behind_a_tls_proxy_the_origin_is_that_of_https(address):
    headers = {"Origin": address.replace("http:", "https:")}
    assert requests.get(address, headers=headers, timeout=10).status_code == 403
    headers["X-Forwarded-Proto"] = "https"
    assert requests.get(address, headers=headers, timeout=10).status_code == 200


def test_a_host_may_have_any_case_in_the_origin(address):
    port = port_of(address)
    headers = {"Host": f"LOCALHOST:{port}", "Origin": f"http://localhost:{port}"}
    response = requests.get(f"{address}/about", headers=headers, timeout=10)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/about", "/examples/0", "/static/demo.js", "/openapi.json"]
)
def test_head_has_the_headers_of_get_and_no_body(address, path):
    found = requests.head(address + path, timeout=10)
    expected = requests.get(address + path, timeout=10)
    assert (found.status_code, found.content) == (200, b"")
    assert found.headers["Content-Length"] == str(len(expected.content))


SERVER = """
import sys
from fastapi import FastAPI
from show_attend_tell.deployment.server.middleware import Guard
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.serve import server_of, take_port

app, queue = FastAPI(), RequestQueue(4)
app.add_middleware(Guard, hosts="*", max_bytes=10, message="large")

def work():
    print("begun", flush=True)
    sys.stdin.readline()

@app.get("/")
async def slow():
    await queue.run(work)

taken = take_port("127.0.0.1", 0)
print(taken.getsockname()[1], flush=True)
server = server_of(app)
server.config.timeout_graceful_shutdown = 0.5  # seconds, of 3
try:
    server.run(sockets=[taken])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("signals", [1, *nightly(2)])
def test_an_interrupt_during_a_request_prints_nothing(signals):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, text=True, **pipes) as process:
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert process.stdout.readline() == "begun\n"
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            found = read_all(connection)
        out, err = process.communicate("end\n", timeout=20)
    assert (out, err) == ("interrupted\n", "")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"the server is stopping" in found
