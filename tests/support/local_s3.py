"""An S3 server on this machine, which the workers of a local cluster reach too."""

import os
import socket
from urllib.parse import urlsplit

BUCKET = "bucket"


def announce() -> None:
    """Set the address and the keys in the environment, before workers are started."""
    if "AWS_ENDPOINT_URL" in os.environ:
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ[name] = "testing"
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"


def start():
    """Start the server at the announced address, with an empty bucket."""
    import logging

    import s3fs
    from moto.server import ThreadedMotoServer

    announce()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    port = urlsplit(os.environ["AWS_ENDPOINT_URL"]).port
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    s3fs.S3FileSystem().mkdir(BUCKET)
    return server
