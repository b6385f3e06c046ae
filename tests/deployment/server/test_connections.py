"""Connections: time limits, origins, and the end of the server."""

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import threading
import time

import h11
import pytest
import requests
from served import post
from tiny_pipeline import photo_bytes

from show_attend_tell.deployment.server import serve


@pytest.fixture
def short_limits(monkeypatch):
    monkeypatch.setattr(serve, "SILENT_SECONDS", 0.3)
    limits = dict.fromkeys(serve._SECONDS, 1.0)
    monkeypatch.setattr(serve, "_SECONDS", limits)


def test_the_limits_are_those_that_security_names():
    assert (serve.SILENT_SECONDS, serve.READ_SECONDS) == (10, 60)
    assert serve.MAX_CONNECTIONS == 256
    assert serve._SECONDS == {h11.IDLE: 10, h11.SEND_BODY: 60}


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
            assert (b'{"error": "the request did not arrive' in found) == responds


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


def test_a_connection_is_used_again_after_its_time_limit(address, short_limits):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(address), 10)
    with contextlib.closing(connection):
        for _ in range(4):
            connection.request("GET", "/about")
            assert connection.getresponse().read()
            time.sleep(0.4)  # longer than a request may take to arrive
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


def test_a_client_that_never_reads_is_disconnected(address, monkeypatch):
    monkeypatch.setattr(serve, "READ_SECONDS", 0.5)
    ended, lost = threading.Event(), serve.LimitedProtocol.connection_lost

    def connection_lost(self, error):
        lost(self, error)
        ended.set()

    monkeypatch.setattr(serve.LimitedProtocol, "connection_lost", connection_lost)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port_of(address)))
        body = form(photo_bytes())
        length = str(len(body)).encode()
        caption = head(address, FORM.replace(b"9999", length)) + body
        script = head(address).replace(b"POST /caption", b"GET /static/demo.js")
        connection.sendall(caption + (script + b"\r\n") * 1000)  # 10 MB of responses
        assert ended.wait(30)
    assert post(address).ok


def form(photo):
    part = b'--x\r\nContent-Disposition: form-data; name="photo"; filename="p"\r\n\r\n'
    return part + photo + b"\r\n--x--\r\n"


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
import time
from fastapi import FastAPI
from show_attend_tell.deployment.server.middleware import Guard
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.serve import server_of, take_port

app, queue = FastAPI(), RequestQueue(4)
app.add_middleware(Guard, max_bytes=10, message="large")

@app.get("/")
async def slow():
    await queue.run(time.sleep, 4)

taken = take_port("127.0.0.1", 0)
print(taken.getsockname()[1], flush=True)
try:
    server_of(app).run(sockets=[taken])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupt_during_a_request_prints_nothing(signals):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], **pipes) as process:
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.5)
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            found = read_all(connection)
        out, err = process.communicate(timeout=20)
    assert (out, err) == ("interrupted\n", "")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"the server is stopping" in found
