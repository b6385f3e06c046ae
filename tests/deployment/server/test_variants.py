"""Variants: each is compiled once, beside the requests that need no compiling."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import requests
from served import serving
from tiny_pipeline import photo_bytes, tiny_pipeline

from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.variants import Variants


class Recorder:
    """A pipeline that records what it compiles."""

    def __init__(self):
        self.compiled = []

    def compile(self, samples, decoding, with_region):
        self.compiled.append((samples, decoding, with_region))


def test_a_variant_is_compiled_once_and_inputs_make_no_variant():
    decoding = tiny_pipeline().decoding(beam=2)
    recorder, variants = Recorder(), Variants(5)
    first, second = (variants.compilation(recorder, decoding) for _ in range(2))
    first()
    second()
    assert recorder.compiled == [(5, decoding, False)]
    other_seed = dataclasses.replace(decoding, seed=9, temperature=2.0)
    assert variants.compilation(recorder, other_seed) is None
    wider = dataclasses.replace(decoding, beam=4)
    assert variants.compilation(recorder, wider) is not None
    assert variants.compilation(Recorder(), decoding) is not None
    variants.compilation(recorder, decoding, with_region=True)()
    assert recorder.compiled[1:] == [(5, decoding, True)]
    assert variants.compilation(recorder, decoding, with_region=True) is None


def test_a_request_that_prepares_delays_no_other():
    queue, go, order = RequestQueue(3), threading.Event(), []

    async def main():
        async with anyio.create_task_group() as group:
            slow = {"prepare": lambda: go.wait(10)}
            group.start_soon(lambda: queue.run(order.append, "slow", **slow))
            await anyio.wait_all_tasks_blocked()
            await queue.run(order.append, "fast")
            assert queue.length == 1  # the one that prepares has its place
            go.set()
        assert queue.length == 0

    anyio.run(main)
    assert order == ["fast", "slow"]


def test_requests_with_the_models_options_do_not_wait_for_a_new_variant(monkeypatch):
    pipeline, go = tiny_pipeline(), threading.Event()
    pipeline.compile()
    compile_variant = pipeline.compile

    def slow(samples, decoding, with_region):
        if decoding.beam == 2:
            assert go.wait(60)
        compile_variant(samples, decoding, with_region)

    monkeypatch.setattr(pipeline, "compile", slow)
    with serving({"tiny": pipeline}) as address, ThreadPoolExecutor(1) as pool:

        def ask(**form):
            files = {"photo": ("p.png", photo_bytes())}
            url = f"{address}/caption"
            return requests.post(url, files=files, data=form, timeout=60).json()

        usual = ask()["text"]
        waiting = pool.submit(ask, beam=2)
        assert ask()["text"] == usual
        assert not waiting.done()
        go.set()
        assert waiting.result()["settings"]["beam"] == 2
