"""Messages between a host and a box, from a peer that may be hostile."""

import pytest

from t1core.sandbox.inbox import wire


@pytest.mark.parametrize("fields", [[], [b""], [b"a", b"", b"\0" * 5], [b"x" * 200_000, b"y"]])
def test_fields_survive_framing(fields):
    assembler = wire.Assembler()
    *parts, last = wire.frames(wire.pack(*fields))
    assert all(len(part) <= wire.FRAME_BYTES + 1 for part in [*parts, last])
    assert [assembler.add(part) for part in parts] == [None] * len(parts)
    assert wire.unpack(assembler.add(last)) == fields


@pytest.mark.parametrize("message", [b"\x01", b"\x05\0\0\0ab", b"\xff\xff\xff\xff"])
def test_lengths_that_do_not_add_up_are_refused(message):
    with pytest.raises(ValueError, match="cut inside"):
        wire.unpack(message)


def test_unknown_and_endless_frames_are_refused():
    with pytest.raises(ValueError, match="bad frame"):
        wire.Assembler().add(b"?abc")
    assembler = wire.Assembler()
    with pytest.raises(ValueError, match="bad frame"):
        for _ in range(2 * wire.MAX_MESSAGE_BYTES // wire.FRAME_BYTES):
            assembler.add(b"+" + b"x" * wire.FRAME_BYTES)
