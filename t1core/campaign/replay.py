"""`t1 replay`: a stored trial once more, without a model. The task's box is built again, what the policy typed is typed
again with the same waits, and each screen is compared with the one that was recorded.

What depends on the time, on process ids or on luck differs between two runs of the same commands; a difference is
shown, and is no fault by itself. With a turn to stop before, the terminal is handed to whoever sits at it;
`continuing.py` hands it to a policy.
"""

import asyncio
import difflib
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1core.agent.choose import wording_of
from t1core.campaign.report import printable
from t1core.config import CampaignConfig
from t1core.config.load import resolve
from t1core.records import Task
from t1core.sandbox.healthcheck import wait_healthy
from t1core.sandbox.kinds import open_kind
from t1core.sandbox.request import box_spec
from t1core.sandbox.sandbox import Box, BoxBroken, Terminal
from t1core.store import Run, StoredTrial
from t1core.tasks.harbor import load_task
from t1core.tasks.pool import Pool
from t1core.verifier.stages import begin

Say = Callable[[str], None]
Ask = Callable[[], Awaitable[str | None]]
_HELP = "a line is typed with its line end; :keys C-c types a key by its tmux name, :screen looks again, :quit leaves"


@dataclass(frozen=True)
class TurnReplay:
    """One turn typed again. `diff` is empty where the screen came out as recorded."""

    index: int
    diff: tuple[str, ...]


def replay(
    run: Run, stored: StoredTrial, *, task: Path | None, from_turn: int | None, say: Say
) -> list[TurnReplay]:
    """Replay a stored trial and say how each screen compares; before turn `from_turn`, if given, hand the terminal to
    the user instead of going on.

    `task` is the directory of the task, else it is looked up in the run's pool. ValueError for a task that can't be
    found, a turn that there is not, and a box that can't be made here.
    """
    indices = stored.turns["index"].tolist()
    if from_turn is not None and from_turn not in (*indices, len(indices)):
        raise ValueError(f"--from-turn {from_turn}: the trial has turns {', '.join(map(str, indices))}")
    config = stored_config(run)
    found = find_task(config, stored.trial, directory=task)
    return asyncio.run(_replay(config, found, stored, from_turn=from_turn, say=say, ask=_read_line))


def stored_config(run: Run) -> CampaignConfig:
    """The configuration that a run was made with."""
    return resolve(run.config(), origin=str(run.path / "config.json"))


async def _replay(
    config: CampaignConfig, task: Task, stored: StoredTrial, *, from_turn: int | None, say: Say, ask: Ask
) -> list[TurnReplay]:
    image = Path(config.sandbox.image_dir).absolute() if config.sandbox.image_dir else None
    sandbox = open_kind(
        config.sandbox.kind,
        image=image,
        is_overlay=config.sandbox.image_root == "overlay",
        environment=config.sandbox.harbor_environment,
        options=json.loads(config.sandbox.harbor_options or "{}"),
    )
    try:
        box = await sandbox.open(
            box_spec(
                task.environment,
                box_id=f"replay_{stored.trial['trial_id'].replace('/', '_')}",
                environment_dir=task.path / "environment",
                memory_mb=config.sandbox.memory_mb,
                storage_mb=config.sandbox.storage_mb,
                max_processes=config.sandbox.max_processes,
            )
        )
        if task.environment.healthcheck is not None:
            await wait_healthy(box, task.environment.healthcheck)
        return await _turns(box, config, task, stored, from_turn=from_turn, say=say, ask=ask)
    finally:
        await sandbox.close()


async def _turns(
    box: Box,
    config: CampaignConfig,
    task: Task,
    stored: StoredTrial,
    *,
    from_turn: int | None,
    say: Say,
    ask: Ask,
) -> list[TurnReplay]:
    agent = config.agent
    wording = wording_of(agent.prompt, protocol=agent.protocol)
    terminal = await box.terminal()
    first, *later = task.stages
    await begin(box, first)
    observer = wording.observer(terminal)
    await observer.look()  # the policy was shown the terminal once before its first turn
    done: list[TurnReplay] = []
    for turn in stored.turns.itertuples():
        if turn.index == from_turn:
            break
        if turn.is_summary:
            continue
        try:
            await _type(terminal, turn.commands, max_wait_s=agent.max_wait_s)
            screen = ""
            if not turn.is_parse_error:
                screen = wording.limit_output(await observer.look(), limit_bytes=agent.output_limit_bytes)
        except BoxBroken as broken:
            screen = f"[{broken}]"
        if later and later[0].instruction.strip() in turn.observation:  # the first prompt of the next step
            await begin(box, later.pop(0))
            await observer.look()
        result = TurnReplay(turn.index, tuple(screen_diff(turn.screen, screen)))
        done.append(result)
        say(f"turn {turn.index}: {'differs' if result.diff else 'as recorded'}")
        for line in result.diff:
            say(f"    {printable(line)}")
    same = sum(not result.diff for result in done)
    say(f"{same} of {len(done)} screens as recorded")
    if from_turn is not None:
        await _hand_over(terminal, say=say, ask=ask)
    return done


async def _type(terminal: Terminal, commands: Any, *, max_wait_s: float) -> None:
    """As the agent's loop types them: each waits for its duration, all of them for `max_wait_s` at most."""
    deadline = time.monotonic() + max_wait_s
    for command in commands:
        left_s = max(0.0, deadline - time.monotonic())
        await terminal.send_keys(command["keystrokes"], max_wait_s=min(command["duration_s"], left_s))


def screen_diff(recorded: str, seen: str) -> Iterator[str]:
    """Lines of a unified diff from the recorded screen to the one seen now, without its head."""
    lines = difflib.unified_diff(recorded.splitlines(), seen.splitlines(), lineterm="", n=1)
    return (line for number, line in enumerate(lines) if number >= 2)


async def _hand_over(terminal: Terminal, *, say: Say, ask: Ask) -> None:
    say(f"the terminal is yours: {_HELP}")
    say(printable(await terminal.screen()))
    while (line := await ask()) not in (None, ":quit"):
        keys = line.removeprefix(":keys ") if line.startswith(":keys ") else line + "\n"
        if line != ":screen":
            try:
                await terminal.send_keys(keys, max_wait_s=30.0)
            except BoxBroken as broken:
                say(f"the box is broken: {broken}")
                return
        say(printable(await terminal.screen()))


async def _read_line() -> str | None:
    line = await asyncio.to_thread(sys.stdin.readline)
    return line.rstrip("\n") if line else None


def find_task(config: CampaignConfig, trial: Any, *, directory: Path | None) -> Task:
    """The task in `directory`, else the trial's in the pool of its run. ValueError where it has none."""
    if directory is not None:
        return load_task(directory)
    from t1core.campaign.assets import prepare_pool

    pool = Pool.open(prepare_pool(config, say=lambda line: None))
    for split in pool.splits:
        for entry in pool.split(split):
            if entry.task_id == trial["task_id"]:
                return pool.task(entry)
    raise ValueError(
        f"task {trial['task_id']!r} is not in pool {pool.directory}: give its directory with --task"
    )
