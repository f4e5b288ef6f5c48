"""The messages between the host and a box's control process, over one SOCK_SEQPACKET socket.

A message is a list of byte fields, each preceded by its length. A message longer than a packet is cut into
frames; each frame's first byte says whether more follow. Both ends use this file. Neither trusts the other's
lengths.
"""

from struct import Struct
from struct import error as StructError

_LENGTH = Struct("<I")
FRAME_BYTES = 60_000
MAX_MESSAGE_BYTES = 64 << 20
_MORE, _LAST = b"+", b"."


def pack(*fields: bytes) -> bytes:
    """Fields to one message."""
    return b"".join(part for field in fields for part in (_LENGTH.pack(len(field)), field))


def unpack(message: bytes) -> list[bytes]:
    """One message to its fields. Raises ValueError when the lengths do not add up."""
    fields, at = [], 0
    while at < len(message):
        try:
            (length,) = _LENGTH.unpack_from(message, at)
        except StructError:
            raise ValueError("message cut inside a length") from None
        at += _LENGTH.size
        if at + length > len(message):
            raise ValueError("message cut inside a field")
        fields.append(message[at : at + length])
        at += length
    return fields


def frames(message: bytes) -> list[bytes]:
    """A message as packets of at most FRAME_BYTES + 1 bytes."""
    cuts = [message[i : i + FRAME_BYTES] for i in range(0, len(message), FRAME_BYTES)] or [b""]
    return [_MORE + cut for cut in cuts[:-1]] + [_LAST + cuts[-1]]


class Assembler:
    """Frames back to messages."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, frame: bytes) -> bytes | None:
        """The whole message once its last frame is in, else None. Raises ValueError on a bad or endless
        message."""
        kind, body = frame[:1], frame[1:]
        self._size += len(body)
        if kind not in (_MORE, _LAST) or self._size > MAX_MESSAGE_BYTES:
            raise ValueError("bad frame")
        self._parts.append(body)
        if kind == _MORE:
            return None
        message = b"".join(self._parts)
        self._parts, self._size = [], 0
        return message
