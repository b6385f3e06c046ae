"""The queue: one at a time, a limit, places freed in every case."""

import threading
import time

import anyio
import pytest
from starlette.exceptions import HTTPException

from show_attend_tell.deployment.server.request_queue import RequestQueue


def test_functions_run_one_at_a_time_and_return_their_results():
    queue, running, most = RequestQueue(10), [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(number)
        return number

    async def main():
        results = {}

        async def ask(number):
            results[number] = await queue.run(work, number)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(ask, number)
        return results

    assert anyio.run(main) == {number: number for number in range(6)}
    assert set(most) == {1}
    assert queue.length == 0


def test_a_full_queue_is_refused_with_a_delay():
    queue, go = RequestQueue(2), threading.Event()

    async def main():
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(queue.run, go.wait, 5)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(HTTPException) as caught:
                await queue.run(go.wait, 5)
            go.set()
        return int(caught.value.headers["Retry-After"])

    assert anyio.run(main) >= 1
    assert queue.length == 0


def test_a_place_is_freed_by_an_error_and_by_a_cancelled_request():
    queue, go = RequestQueue(2), threading.Event()
    started = []

    def fail():
        raise OSError("lost")

    async def main():
        with pytest.raises(OSError, match="lost"):
            await queue.run(fail)
        assert queue.length == 0
        async with anyio.create_task_group() as group:
            group.start_soon(queue.run, go.wait, 5)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.05):
                await queue.run(started.append, 1)  # cancelled while it waits
            assert (queue.length, started) == (1, [])
            go.set()
        assert queue.length == 0
        await queue.run(started.append, 2)

    anyio.run(main)
    assert started == [2]


def test_a_request_cancelled_while_it_runs_still_runs_alone():
    queue, go, order = RequestQueue(3), threading.Event(), []

    def first():
        go.wait(10)
        order.append("first")

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(queue.run, first)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            threading.Timer(0.1, go.set).start()
        await queue.run(order.append, "second")

    anyio.run(main)
    assert order == ["first", "second"]
