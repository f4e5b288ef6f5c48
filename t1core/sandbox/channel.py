"""The host's end of a box's control socket: orders out, answers in, each within a deadline.

What comes back was written by a process the agent may have replaced, so it is bounded, parsed strictly, and
its descriptors are never accepted.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import BinaryIO

from t1core.sandbox.inbox import wire
from t1core.sandbox.outbox import Outbox
from t1core.sandbox.sandbox import BoxBroken, BoxDied, BoxTimeout

CONTROL_DEADLINE_S = 60.0
MAX_OUTPUT_BYTES = 8 << 20


class Channel:
    """Orders to one control process. `why_dead` says what is known once it is gone."""

    def __init__(self, sock: socket.socket, *, box_id: str, why_dead: Callable[[], str]) -> None:
        self._outbox = Outbox(sock)
        self._socket, self._box_id, self._why_dead = sock, box_id, why_dead
        self._assembler = wire.Assembler()
        self._waiting: dict[bytes, asyncio.Future[list[bytes]]] = {}
        self._next_id = 0
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[list[bytes]] = self._loop.create_future()
        self.is_dead = False
        self._broken = ""  # how what runs in the box ended it, as its control process said
        self._loop.add_reader(sock.fileno(), self._receive)

    async def ask(self, order: str, *fields: bytes, deadline_s: float = CONTROL_DEADLINE_S) -> list[bytes]:
        """Send an order and wait for its answer's fields. Raises BoxDied, BoxBroken, BoxTimeout."""
        ident, answer = self.start(order, *fields)
        try:
            return await asyncio.wait_for(answer, deadline_s)
        except TimeoutError:
            raise BoxTimeout(f"box {self._box_id}: no answer to {order!r} within {deadline_s:g} s") from None
        finally:
            self._waiting.pop(ident, None)

    def start(
        self, order: str, *fields: bytes, fds: tuple[int, ...] = ()
    ) -> tuple[bytes, "asyncio.Future[list[bytes]]"]:
        """Send an order, with descriptors that the caller may close at once; returns its id and the answer to
        come. Never waits for the control process to take it. Raises BoxDied, BoxBroken."""
        if self.is_dead:
            raise self._end()
        self._next_id += 1
        ident = b"%d" % self._next_id
        answer = self._waiting[ident] = self._loop.create_future()
        try:
            self._outbox.send(wire.pack(order.encode(), ident, *fields), fds=fds)
        except OSError:
            self._waiting.pop(ident)
            raise self._end() from None
        return ident, answer

    def _end(self) -> Exception:
        if self._broken:
            return BoxBroken(f"box {self._box_id} is gone: {self._broken}")
        return BoxDied(f"box {self._box_id} is gone: {self._why_dead()}")

    def _receive(self) -> None:
        for _ in range(64):
            try:
                frame = self._socket.recv(wire.FRAME_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                frame = b""
            if not frame:
                self.close()
                return
            try:
                message = self._assembler.add(frame)
                if message is not None:
                    self._dispatch(*wire.unpack(message))
            except (ValueError, TypeError):  # not our control process speaking any more
                self.close()
                return

    def _dispatch(self, kind: bytes, ident: bytes = b"", *fields: bytes) -> None:
        if kind == b"broken":
            self._broken = ident[:500].decode(errors="replace")
            return
        answer = self.ready if kind == b"ready" else self._waiting.pop(ident, None)
        if answer is None or answer.done():
            return
        if kind == b"error":
            answer.set_exception(
                BoxBroken(f"box {self._box_id}: {b' '.join(fields)[:500].decode(errors='replace')}")
            )
        else:
            answer.set_result(list(fields))

    def close(self) -> None:
        """End the conversation; every open order fails with BoxDied or BoxBroken."""
        if self.is_dead:
            return
        self.is_dead = True
        self._loop.remove_reader(self._socket.fileno())
        self._outbox.close()
        self._socket.close()
        for answer in [self.ready, *self._waiting.values()]:
            if not answer.done():
                answer.set_exception(self._end())
                answer.exception()  # the waiter may have left already; its silence is no error
        self._waiting.clear()


class OutputReader:
    """Collects what a command writes, up to a limit; past it the pipe is closed, which stops the writer, and `is_cut`
    says so."""

    def __init__(self, *, limit_bytes: int = MAX_OUTPUT_BYTES, file: BinaryIO | None = None) -> None:
        """With `file`, what is read goes there instead of into memory."""
        self._fd, self.write_fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._limit_bytes, self._file = limit_bytes, file
        self._parts: list[bytes] = []
        self._size = 0
        self.is_cut = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return False
        kept = data[: self._limit_bytes - self._size]
        if self._file is None:
            self._parts.append(kept)
        else:
            self._file.write(kept)
        self._size += len(kept)
        self.is_cut = len(kept) < len(data)
        if not data or self.is_cut:
            self.close()
            return False
        return True

    def finish(self) -> bytes:
        """What was written so far; a child that lives on and holds the pipe is not waited for."""
        while self._fd >= 0 and self._read():
            pass
        self.close()
        return b"".join(self._parts)

    def close(self) -> None:
        """Close the read end."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
