"""Pacing of box creation: an async token bucket for any rate, also below one a second."""

import asyncio
import threading
import time
from collections.abc import Callable


class Pacer:
    """Lets through `rate_per_s` callers a second, in order of arrival, after a first burst of `burst`.

    A caller reserves the next free slot under a lock, which is held for a few instructions and never across an await,
    and then waits for it on its own event loop. So one pacer serves several loops and threads: all that share it, in
    training and in evaluation, keep the rate together. A caller that is cancelled as it waits leaves its slot unused.
    """

    def __init__(
        self, rate_per_s: float, *, burst: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not rate_per_s > 0:
            raise ValueError(f"rate_per_s={rate_per_s}: a pacer needs a positive rate")
        self._interval_s = 1.0 / rate_per_s
        self._burst_s = self._interval_s * max(burst - 1, 0)
        self._clock = clock
        self._next = float("-inf")
        self._lock = threading.Lock()

    def reserve(self) -> float:
        """Take the next slot and return the seconds to wait for it."""
        with self._lock:
            now = self._clock()
            slot = max(self._next, now - self._burst_s)
            self._next = slot + self._interval_s
        return max(0.0, slot - now)

    async def take(self) -> None:
        """Wait for the next slot."""
        delay = self.reserve()
        if delay > 0:
            await asyncio.sleep(delay)
