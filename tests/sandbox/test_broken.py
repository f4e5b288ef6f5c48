"""What an agent can do to its own terminal and box: it loses them, and never looks like a sandbox that failed."""

import asyncio
import contextlib

import pytest

from t1core.sandbox.sandbox import BoxBroken
from tests.sandbox.boxes import in_sandbox, spec

TMUX = "tmux -S /run/t1/tmux"


async def next_turns(terminal, *, num=3):
    """A few turns after the attack: what the last one shows, or why there is none."""
    try:
        for _ in range(num):
            await terminal.send_keys("echo here\n", max_wait_s=1)
            shown = await terminal.incremental()
        return shown
    except BoxBroken as broken:
        return broken


@pytest.mark.parametrize(
    "attack",
    [
        f"{TMUX} set -s 'command-alias[90]' 'display-message=list-keys'",
        f"{TMUX} set -s 'command-alias[90]' 'capture-pane=show-options'",
        "rm -rf /run/t1; touch /run/t1; kill -9 $PPID",
        "echo 'set -g default-command false' > /root/.tmux.conf; kill -9 $PPID",
        "kill -9 -1",
        f"{TMUX} kill-server",
        f"{TMUX} detach-client",
        "for i in $(seq 200); do sleep 60 & done 2> /dev/null; exec 2>&-; kill -9 $PPID",
        "ulimit -u 1; exec sleep 0",
    ],
)
def test_an_attack_on_the_terminal_is_the_boxs_own_end_or_none(attack):
    async def run(sandbox):
        box = await sandbox.open(spec(max_processes=32))
        terminal = await box.terminal()
        await box.exec("echo kept > kept", timeout_s=30)
        with contextlib.suppress(BoxBroken):
            await terminal.send_keys(attack + "\n", max_wait_s=2)
        shown = await next_turns(terminal)
        assert isinstance(shown, BoxBroken) or "Terminal" in shown
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "kept").read_text() == "kept\n"
        layer.close()

    in_sandbox(run)


def test_a_stopped_terminal_is_replaced_and_the_limits_hold_meanwhile():
    async def run(sandbox):
        box = await sandbox.open(spec(storage_mb=20))
        terminal = await box.terminal()
        pids = (await box.exec(f"{TMUX} display-message -p '#{{pid}}'", timeout_s=30)).stdout.decode().strip()
        await terminal.send_keys(f"kill -STOP {pids}\n", max_wait_s=1)
        # More than the pipe to tmux holds: whoever waited for it to be read would do nothing else.
        typing = asyncio.create_task(terminal.send_keys("x" * 100_000, max_wait_s=3))
        assert (await box.exec("echo alive", timeout_s=10)).stdout == b"alive\n"
        assert not await typing
        assert (await terminal.incremental()).startswith("Current Terminal Screen")  # answered by a new one
        assert await terminal.send_keys("echo a fresh shell\n", max_wait_s=60)
        assert "a fresh shell" in await terminal.incremental()
        await terminal.send_keys("kill -STOP $PPID; head -c 60M /dev/zero > /tmp/f\n", max_wait_s=0.5)
        with pytest.raises(BoxBroken, match="its limit is 20 MB"):
            await box.exec("sleep 20", timeout_s=30)

    in_sandbox(run)
