"""What still has to go out on a socket whose other end may not be reading: sent when there is room, in order.

Nothing here waits, so that one peer that has stopped holds up nobody else; whoever expects an answer sets the
deadline.
"""

import array
import asyncio
import os
import socket
from collections import deque

from t1core.sandbox.inbox import wire


class Outbox:
    """Messages of one SOCK_SEQPACKET socket, as `wire` frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._frames: deque[tuple[bytes, tuple[int, ...]]] = deque()

    def send(self, message: bytes, *, fds: tuple[int, ...] = ()) -> None:
        """Send a message, with descriptors on its last frame; the caller may close them at once. Raises
        OSError when the other end is gone."""
        *first, last = wire.frames(message)
        had_room = not self._frames
        own_fds = tuple(os.dup(fd) for fd in fds)
        self._frames += [(frame, ()) for frame in first]
        self._frames.append((last, own_fds))
        if had_room and not self._flush():
            self._loop.add_writer(self._socket.fileno(), self._flush_rest)

    def _flush(self) -> bool:
        """Send what there is room for; whether that was all."""
        while self._frames:
            frame, fds = self._frames[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self._socket.sendmsg([frame], rights)
            except BlockingIOError:
                return False
            except OSError:
                self._drop()
                raise
            self._frames.popleft()
            for fd in fds:
                os.close(fd)
        return True

    def _flush_rest(self) -> None:
        try:
            is_done = self._flush()
        except OSError:  # the reading side of the socket sees its end too, and tells those who wait
            is_done = True
        if is_done:
            self._loop.remove_writer(self._socket.fileno())

    def _drop(self) -> None:
        for _, fds in self._frames:
            for fd in fds:
                os.close(fd)
        self._frames.clear()

    def close(self) -> None:
        """Let go of what was not sent. Before the socket is closed."""
        self._drop()
        self._loop.remove_writer(self._socket.fileno())
