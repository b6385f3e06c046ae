"""A web server in a thread, with a model that writes without training."""

import contextlib
import io
import threading
import time

import numpy as np
from PIL import Image
from show_attend_tell.inference.teller import Teller
from speaking_captioner import ENCODER, make_captioner

from show_attend_tell.deployment.server.app import Example, create_app
from show_attend_tell.deployment.server.serve import server_of, take_port
from show_attend_tell.deployment.server.uploads import Limits
from show_attend_tell.models.encoder import Encoder


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
