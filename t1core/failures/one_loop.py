"""Evaluations on several event loops that share one asyncio limit, which belongs to one loop.

`asyncio`'s locks and semaphores may be taken from any loop while they are free. The first task that has to wait binds
the object to its loop, and whoever waits on another loop gets a RuntimeError. So the loss begins with the first queue.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from t1core.rollout.pacing import Pacer


def under_a_semaphore(num_tasks: int, *, at_once: int, patience_s: float = 0.2) -> Counter[str]:
    """What becomes of tasks that each run on a thread and a loop of their own, under one `asyncio.Semaphore`.

    Those that get in stay until all others have tried and given up, as long trials do. One task can queue, and gives
    up after `patience_s`.
    """
    limit = asyncio.Semaphore(at_once)
    one_by_one = threading.Lock()
    all_tried, all_ended = threading.Barrier(num_tasks), threading.Barrier(num_tasks)

    async def task() -> str:
        with one_by_one:
            is_in = not limit.locked()
            waiting = asyncio.ensure_future(limit.acquire())
            await asyncio.sleep(0)
        await asyncio.to_thread(all_tried.wait)
        became = "done" if is_in else await _waited(waiting, patience_s=patience_s)
        await asyncio.to_thread(all_ended.wait)
        if is_in:
            await waiting
            limit.release()
        return became

    return _on_loops_of_their_own(task, num_tasks=num_tasks)


def under_a_pacer(num_tasks: int, *, rate_per_s: float) -> Counter[str]:
    """The same tasks, held back by one `Pacer`."""
    pacer = Pacer(rate_per_s)

    async def task() -> str:
        await pacer.take()
        return "done"

    return _on_loops_of_their_own(task, num_tasks=num_tasks)


async def _waited(turn: asyncio.Future, *, patience_s: float) -> str:
    try:
        await asyncio.wait_for(turn, patience_s)
    except RuntimeError as error:
        return f"RuntimeError: {str(error).partition('> ')[2] or error}"
    except TimeoutError:
        return "gave up waiting"
    return "done"


def _on_loops_of_their_own(task: Callable[[], Awaitable[str]], *, num_tasks: int) -> Counter[str]:
    with ThreadPoolExecutor(num_tasks) as pool:
        running = [pool.submit(lambda: asyncio.run(task())) for _ in range(num_tasks)]
        return Counter(each.result() for each in running)
