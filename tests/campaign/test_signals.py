"""What goes on beside a campaign's work: its heart beats, and only the first signal cancels it."""

import asyncio
import os
import signal

import pytest

from t1core.campaign import campaign


def test_the_heart_beats_while_the_work_waits(monkeypatch):
    monkeypatch.setattr(campaign, "_BEAT_S", 0.05)
    beats = []
    asyncio.run(campaign._until_signal(asyncio.sleep(0.4), beat=lambda: beats.append(1)))
    assert len(beats) >= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_disturb_the_ending(number):
    before = signal.getsignal(number)
    ended = []

    async def work():
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(10)
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.2)
            ended.append(True)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(campaign._until_signal(work(), beat=lambda: None))
    assert ended == [True]
    assert signal.getsignal(number) == before


def test_a_heart_that_cannot_beat_ends_the_work_and_says_why(monkeypatch):
    monkeypatch.setattr(campaign, "_BEAT_S", 0.05)
    ended = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    def beat():
        raise OSError("the run directory is gone")

    with pytest.raises(OSError, match="the run directory is gone"):
        asyncio.run(campaign._until_signal(work(), beat=beat))
    assert ended == [True]


def test_an_error_of_the_work_passes_through():
    async def work():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(campaign._until_signal(work(), beat=lambda: None))
