"""One publication over parts that note what they are asked: its order, one transfer that goes wrong, and many."""

import asyncio

import pytest

from t1core.cluster import crew
from t1core.config import load_config


class Noting:
    """A part that answers from a table, and whose calls all land in one list."""

    def __init__(self, name, calls, **answers):
        self.name, self.calls, self.answers = name, calls, answers

    async def call(self, method, *arguments, deadline_s, **options):
        self.calls.append((self.name, method, deadline_s is None))
        answer = self.answers.get(method)
        return answer.pop(0) if isinstance(answer, list) else answer


def publish(monkeypatch, checksums, calls=None):
    monkeypatch.setattr(crew.ray, "put", lambda value: value)
    calls = [] if calls is None else calls
    trainer = Noting("trainer", calls, export_actor=({"w": 1}, "right"))
    engine = Noting("engine 0", calls, update_weights=list(checksums))
    made = crew.Crew(load_config("smoke"), [trainer], engine, [Noting("host", calls)])
    return asyncio.run(made.publish(3)), calls


def test_generation_stops_first_and_goes_on_last_and_only_bulk_calls_have_no_deadline(monkeypatch):
    published, calls = publish(monkeypatch, ["right"])
    assert calls == [
        ("engine 0", "pause_generation", False),
        ("trainer", "export_actor", True),
        ("engine 0", "update_weights", True),
        ("trainer", "rotate", False),
        ("engine 0", "continue_generation", False),
    ]
    assert published.checksum == "right"
    parts = (published.quiesce_s, published.transfer_s, published.verify_s, published.resume_s)
    assert all(seconds >= 0 for seconds in parts)


def test_a_transfer_that_fails_once_is_tried_again(monkeypatch, caplog):
    published, calls = publish(monkeypatch, ["torn", "right"])
    assert published.checksum == "right" and "holds checksum torn" in caplog.text
    assert [method for _, method, _ in calls].count("update_weights") == 2


def test_a_transfer_that_keeps_failing_is_an_error_and_the_snapshot_is_not_rotated(monkeypatch):
    calls = []
    with pytest.raises(RuntimeError, match="engine 0 holds checksum torn, the trainer exported right"):
        publish(monkeypatch, ["torn", "torn"], calls)
    assert calls and "rotate" not in [method for _, method, _ in calls]
