"""What a turn shows the model of the terminal: as the box tells it, or as Harbor's Terminus-2 does."""

from typing import Protocol

from t1core.sandbox.sandbox import Terminal


class Observer(Protocol):
    """Looks at one trial's terminal, again and again."""

    async def look(self) -> str:
        """What is new since the last look, or the screen."""
        ...


class PlainObserver:
    """New lines only, without the pane's blank rows."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    async def look(self) -> str:
        return await self._terminal.incremental()


class Terminus2Observer:
    """Terminus-2's rule over tmux's own text, blank rows included.

    The new part begins at the line break before the last line seen before, counted from the top of the whole buffer,
    or with the old text where that was one line; it is the whole visible screen where nothing but blanks is new or the
    old text is no longer found.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._seen: str | None = None

    async def look(self) -> str:
        seen, buffer = self._seen, await self._terminal.capture(is_whole=True)
        self._seen = buffer
        known = None if seen is None else seen.strip()
        if known is not None and known in buffer:
            new = buffer[known.rfind("\n") if "\n" in known else buffer.index(known) :]
            if new.strip():
                return f"New Terminal Output:\n{new}"
        return f"Current Terminal Screen:\n{await self._terminal.capture(is_whole=False)}"
