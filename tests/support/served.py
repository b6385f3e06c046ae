"""A web server in a thread."""

import contextlib
import threading
import time
from unittest import mock

import requests
from tiny_pipeline import photo_bytes

from show_attend_tell.deployment.server import uploads
from show_attend_tell.deployment.server.app import create_app
from show_attend_tell.deployment.server.serve import server_of, take_port


def post(address, service="caption", content=None, name="p.png", headers=None, **form):
    """Post a file, by default a photo, and the fields of a form to a service."""
    files = {"photo": (name, photo_bytes() if content is None else content)}
    url = f"{address}/{service}"
    return requests.post(url, files=files, headers=headers, data=form, timeout=60)


@contextlib.contextmanager
def serving(pipelines, queue_limit=32, tabs=()):
    """Serve models, a dict by name, and further tabs; yield the address."""
    examples = [("noise", photo_bytes(7, "JPEG"), "a failure")]
    smaller = mock.patch.multiple(uploads, MEGABYTES=1, MEGAPIXELS=1)
    smaller.start()
    try:
        app = create_app(pipelines, examples, queue_limit, tabs=tabs)
        with serving_app(app) as (address, _):
            yield address
    finally:
        smaller.stop()


@contextlib.contextmanager
def serving_app(app):
    """Serve an application; yield the address and the server's thread."""
    taken = take_port("127.0.0.1", 0)
    server = server_of(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{taken.getsockname()[1]}", thread
    finally:
        server.should_exit = True
        thread.join()
        taken.close()
