"""The terminal of a box over a `Machine`: a login shell in tmux, driven by one command of the machine a call.

The shell is taken for idle when it sleeps as the terminal's foreground process and the pane has not changed for two
looks, a tenth of a second apart. That is weaker than the bubblewrap boxes' check, which also knows the prompt: a
machine that is very slow to start what was typed can be taken for idle too soon.
"""

from collections.abc import Awaitable, Callable

from t1core.sandbox.channel import CONTROL_DEADLINE_S
from t1core.sandbox.sandbox import BoxBroken

KEYS_PER_COMMAND = 4000
# The shell is started again where it was left, as a bubblewrap box does.
_START = r"""
tmux() { command tmux -S /tmp/.t1-tmux "$@"; }
start() {
  tmux -f /dev/null start-server \; set-option -g history-limit 20000 \; set-option -g status off \; \
    set-option -g default-terminal screen-256color \; new-session -d -s t1 -x "$1" -y "$2" \
    'exec env "PS1=root@box:\w# " bash --login'  # a shell in between drops the prompt of its environment
}
"""
_OPEN = 'start "$1" "$2" && echo opened'
# $1 and $2 the size, $3 microseconds at most, then keys.
_KEYS = r"""
end=$(( ${EPOCHREALTIME/./} + $3 ))
tmux has-session -t t1 || start "$1" "$2"
shift 3; wants_all=; [ $# -eq 0 ] && wants_all=1
for keys; do tmux send-keys -t t1 -- "$keys"; done
sleep 0.1; before=; idle=0
while (( ${EPOCHREALTIME/./} < end )); do
  pid=$(tmux display-message -p -t t1 '#{pane_pid}') || break
  now=$(tmux capture-pane -p -t t1; tmux display-message -p -t t1 '#{cursor_x},#{cursor_y},#{history_size}')
  read -r line < "/proc/$pid/stat"; set -- ${line##*) }
  if [ "$1" = S ] && [ "$3" = "$6" ] && [ "$now" = "$before" ] &&
     { [ -z "$wants_all" ] || ! read -r -n 1 _ < "/proc/$pid/task/$pid/children"; }; then idle=1; break; fi
  before=$now; sleep 0.1
done
echo $idle
"""
_NEW = "New Terminal Output:\n\n"
_SCREEN = "Current Terminal Screen:\n\n"


class MachineTerminal:
    """See `sandbox.Terminal`."""

    def __init__(self, ask: Callable[..., Awaitable[bytes]]) -> None:
        """`ask(script, *args, within_s=..., cwd=...)` runs a script in the box: what it said."""
        self._ask, self._size, self._cwd = ask, ("", ""), "/"
        self._previous: str | None = None

    async def open(self, *, width: int, height: int, cwd: str) -> None:
        """Start tmux and wait for the shell. Raises BoxBroken when it does not start."""
        self._size, self._cwd = (str(width), str(height)), cwd
        if await self._ask(_START + _OPEN, *self._size, cwd=cwd) != b"opened\n":
            raise BoxBroken("tmux does not start")
        await self.send_keys("", max_wait_s=20.0)

    async def send_keys(self, keys: str, *, max_wait_s: float) -> bool:
        """See `Terminal.send_keys`."""
        parts = [keys[at : at + KEYS_PER_COMMAND] for at in range(0, len(keys), KEYS_PER_COMMAND)]
        # tmux takes a semicolon at an argument's end for the end of its command.
        parts = [part[:-1] + "\\;" if part.endswith(";") else part for part in parts]
        within_s = max_wait_s + CONTROL_DEADLINE_S
        limit = str(int(max_wait_s * 1e6))
        said = await self._ask(_START + _KEYS, *self._size, limit, *parts, within_s=within_s, cwd=self._cwd)
        return said == b"1\n"

    async def screen(self) -> str:
        """See `Terminal.screen`."""
        return (await self.capture(is_whole=False)).rstrip()

    async def colours(self) -> str:
        """See `Terminal.colours`."""
        return (await self._ask(_START + "tmux capture-pane -p -e -t t1")).decode(errors="replace").rstrip()

    async def capture(self, *, is_whole: bool) -> str:
        """See `Terminal.capture`."""
        script = _START + "tmux capture-pane -p -t t1" + " -S -" * is_whole
        return (await self._ask(script)).decode(errors="replace")

    async def incremental(self) -> str:
        """See `Terminal.incremental`."""
        current, seen = await self.capture(is_whole=True), self._previous
        self._previous = current.strip()
        at = -1 if seen is None else current.find(seen)
        if seen is not None and at >= 0 and current[at + len(seen) :].strip():
            return _NEW + current[at + seen.rfind("\n") + 1 :].rstrip()
        return _SCREEN + await self.screen()
