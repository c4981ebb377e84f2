"""The work queue: never a key twice, never to two workers at once, no change ever missed."""

import asyncio

from trainmaster.queueing import Key, RetryPauses, WorkQueue

from tests.platforms import clock

A, B = Key("lab", "a"), Key("lab", "b")


async def drain(queue: WorkQueue, seconds: float = 1000) -> list[tuple[float, Key]]:
    """Work on all that comes in this time: when, and what."""
    loop, done = asyncio.get_running_loop(), list[tuple[float, Key]]()
    end = loop.time() + seconds
    while True:
        try:
            key = await asyncio.wait_for(queue.get(), end - loop.time())
        except TimeoutError:
            return done
        done.append((loop.time(), key))
        queue.done(key)


def test_a_key_that_waits_is_not_queued_again() -> None:
    async def scenario() -> list[tuple[float, Key]]:
        queue = WorkQueue()
        for key in (A, B, A, A):
            queue.add(key)
        assert len(queue) == 2
        return await drain(queue)

    assert [key for _, key in clock.run(scenario())] == [A, B]


def test_a_change_while_it_is_worked_on_is_not_missed() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        assert len(queue) == 0, "no second worker gets it"
        queue.done(A)
        assert await queue.get() == A

    clock.run(scenario())


def test_later_means_later() -> None:
    async def scenario() -> list[tuple[float, Key]]:
        queue = WorkQueue()
        queue.add_after(A, 10)
        queue.add_after(B, 5)
        return await drain(queue)

    assert clock.run(scenario()) == [(5, B), (10, A)]


def test_of_two_wishes_the_earlier_counts() -> None:
    async def scenario() -> list[tuple[float, Key]]:
        queue = WorkQueue()
        queue.add_after(A, 10)
        queue.add_after(A, 60)
        queue.add_after(B, 60)
        queue.add_after(B, 20)
        return await drain(queue)

    assert clock.run(scenario()) == [(10, A), (20, B)]


def test_what_is_added_at_once_is_not_worked_on_again_later() -> None:
    async def scenario() -> list[tuple[float, Key]]:
        queue = WorkQueue()
        queue.add_after(A, 10)
        queue.add(A)
        queue.add_after(A, 20)
        return await drain(queue)

    assert clock.run(scenario()) == [(0, A)]


def test_a_waiting_worker_is_woken() -> None:
    async def scenario() -> list[Key]:
        queue = WorkQueue()
        workers = [asyncio.create_task(queue.get()) for _ in range(2)]
        await asyncio.sleep(1)
        queue.add(A)
        await asyncio.sleep(1)
        queue.add(B)
        return list(await asyncio.gather(*workers))

    assert sorted(clock.run(scenario())) == [A, B]


def test_pauses_grow_up_to_a_limit_and_start_anew_after_success() -> None:
    pauses = RetryPauses()
    assert [pauses.longer(A, 5) for _ in range(7)] == [0.25, 0.5, 1, 2, 4, 5, 5]
    assert pauses.longer(B, 5) == 0.25
    pauses.forget(A)
    assert pauses.longer(A, 5) == 0.25
