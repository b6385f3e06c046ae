"""A web server in a thread, with a model that writes without training."""

import contextlib
import io
import threading
import time

import numpy as np
from PIL import Image
from speaking_captioner import ENCODER, make_captioner

from show_attend_tell.encoder import Encoder
from show_attend_tell.teller import Teller
from show_attend_tell.uploads import Limits
from show_attend_tell.web_app import Example, create_app
from show_attend_tell.web_server import server_of, take_port


def photo(seed=1, kind="PNG", size=(96, 72)):
    """Bytes of a photo; another seed is another photo."""
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST).save(buffer, kind)
    return buffer.getvalue()


def make_teller(folder, name="tiny"):
    path = folder / f"{name}.keras"
    make_captioner(Encoder(ENCODER)).save(path)
    teller = Teller(path, name)
    teller.warm_up()
    return teller


@contextlib.contextmanager
def serving(tellers, places=32):
    """Serve and yield the address."""
    examples = [Example("noise", photo(7, "JPEG"))]
    app = create_app(tellers, examples, places, Limits(1, 1))
    taken = take_port("127.0.0.1", 0)
    server = server_of(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        taken.close()
