"""Variants: each is compiled once, beside the requests that need no compiling."""

import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import requests
from served import serving
from tiny_pipeline import photo_bytes, tiny_pipeline, with_decoding

from show_attend_tell.deployment.server.captions import Variants
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.inference.request import CaptionRequest


def test_a_variant_is_compiled_once_and_inputs_make_no_variant(monkeypatch):
    pipeline, variants, compiled = tiny_pipeline(), Variants(), []
    monkeypatch.setattr(pipeline, "compile", compiled.append)
    request = CaptionRequest(beam=2)
    first, second = (variants.compilation(pipeline, request) for _ in range(2))
    first()
    second()
    assert compiled == [request]
    other_heat = CaptionRequest(beam=2, temperature=2.0)
    assert variants.compilation(pipeline, other_heat) is None
    assert variants.compilation(pipeline, CaptionRequest(beam=4)) is not None
    other_pipeline = with_decoding(pipeline)
    assert variants.compilation(other_pipeline, request) is not None
    part = CaptionRequest(beam=2, region=(1, 1, 9, 9))
    variants.compilation(pipeline, part)()
    assert compiled[1:] == [part]
    assert variants.compilation(pipeline, part) is None


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

    def slow(request):
        if request.beam == 2:
            assert go.wait(60)
        compile_variant(request)

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
