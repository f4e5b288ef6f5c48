"""One pacer under contention: several threads, each with its event loop, keep the rate together."""

import asyncio
import threading

from t1core.rollout.pacing import Pacer


def test_slots_are_never_given_twice_to_threads_with_loops_of_their_own():
    pacer = Pacer(1e6, clock=lambda: 0.0)
    delays, lock = [], threading.Lock()

    def caller():
        async def take_many():
            for _ in range(500):
                delay = pacer.reserve()
                with lock:
                    delays.append(delay)
                await asyncio.sleep(0)

        asyncio.run(take_many())

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slots = sorted(round(delay * 1e6) for delay in delays)
    assert slots == list(range(4000)), "every slot once, none left out"


def test_waiting_on_one_loop_does_not_hold_up_another():
    pacer = Pacer(0.01)  # one slot in 100 s
    took = []

    async def waits():
        await pacer.take()
        task = asyncio.ensure_future(pacer.take())
        await asyncio.sleep(0.01)
        took.append(task.done())
        task.cancel()
        return pacer.reserve()

    def other():
        took.append(asyncio.run(asyncio.wait_for(answered(), 5)))

    async def answered():
        return pacer.reserve() > 100

    assert asyncio.run(waits()) > 150, "a slot that was cancelled stays reserved"
    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    assert took == [False, True]
