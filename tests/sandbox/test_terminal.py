"""The terminal: when a turn ends, and what it shows."""

import asyncio
import re
import time

from tests.sandbox.boxes import in_sandbox, spec


def in_terminal(test, **changes):
    async def run(sandbox):
        box = await sandbox.open(spec(**changes))
        await test(await box.terminal())

    in_sandbox(run)


def test_a_turn_ends_when_the_prompt_is_back():
    async def run(terminal):
        assert await terminal.incremental() == "Current Terminal Screen:\n\nroot@box:/app#"
        started = time.monotonic()
        assert await terminal.send_keys("echo hello > a.txt; cat a.txt\n", max_wait_s=60)
        assert time.monotonic() - started < 30
        assert await terminal.incremental() == (
            "New Terminal Output:\n\nroot@box:/app# echo hello > a.txt; cat a.txt\nhello\nroot@box:/app#"
        )

    in_terminal(run)


def test_the_pane_in_colour_is_the_pane_with_its_sequences():
    async def run(terminal):
        await terminal.send_keys("clear; printf '\\033[1;31mred\\033[0m plain\\n'\n", max_wait_s=60)
        coloured = await terminal.colours()
        assert re.search(r"\x1b\[[0-9;]*31mred(\x1b\[[0-9;]*m)+ plain", coloured)
        assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).rstrip() == await terminal.screen()

    in_terminal(run)


def test_a_slow_silent_command_is_waited_for():
    async def run(terminal):
        started = time.monotonic()
        assert await terminal.send_keys("sleep 0.6; echo done\n", max_wait_s=60)
        assert time.monotonic() - started >= 0.6
        assert (await terminal.screen()).endswith("done\nroot@box:/app#")

    in_terminal(run)


def test_a_command_that_outlasts_its_wait_gives_control_back():
    async def run(terminal):
        started = time.monotonic()
        assert not await terminal.send_keys("sleep 30\n", max_wait_s=0.3)
        assert 0.3 <= time.monotonic() - started < 10
        assert await terminal.send_keys("C-c", max_wait_s=30)
        assert (await terminal.screen()).endswith("^C\nroot@box:/app#")

    in_terminal(run)


def test_several_lines_in_one_go_all_run():
    async def run(terminal):
        assert await terminal.send_keys("echo a\necho b\ncd /tmp\necho c\n", max_wait_s=60)
        lines = (await terminal.screen()).splitlines()
        assert [line for line in lines if len(line) == 1] == ["a", "b", "c"]
        assert lines[-1] == "root@box:/tmp#"

    in_terminal(run)


def test_an_interactive_python_is_typed_into():
    async def run(terminal):
        assert not await terminal.send_keys("python3 -q\n", max_wait_s=2)
        assert not await terminal.send_keys("print(6 * 7)\n", max_wait_s=1)
        assert (await terminal.incremental()).splitlines()[-2:] == ["42", ">>>"]
        assert await terminal.send_keys("C-d", max_wait_s=30)

    in_terminal(run)


def test_keys_arrive_as_written():
    keys = """printf '%s|' "a b" '$HOME' \\$x 'q"q' é ';' '#{x}' '~' '%'"""

    async def run(terminal):
        assert await terminal.send_keys(keys + "\n", max_wait_s=60)
        assert """a b|$HOME|$x|q"q|é|;|#{x}|~|%|""" in await terminal.screen()

    in_terminal(run)


def test_output_longer_than_the_screen_comes_back_whole():
    async def run(terminal):
        await terminal.incremental()
        assert await terminal.send_keys("seq 5000\n", max_wait_s=60)
        text = await terminal.incremental()
        assert text.startswith("New Terminal Output:\n\nroot@box:/app# seq 5000\n1\n2\n")
        assert text.endswith("\n4999\n5000\nroot@box:/app#")

    in_terminal(run)


def test_a_prompt_after_output_without_a_newline_ends_the_turn():
    async def run(terminal):
        started = time.monotonic()
        assert await terminal.send_keys("printf abc\n", max_wait_s=60)
        assert time.monotonic() - started < 30
        assert (await terminal.screen()).endswith("abcroot@box:/app#")

    in_terminal(run)


def test_a_cleared_screen_is_shown_instead_of_new_output():
    async def run(terminal):
        await terminal.send_keys("echo one\n", max_wait_s=60)
        await terminal.incremental()
        await terminal.send_keys("printf '\\033[H\\033[2J\\033[3J'; echo two\n", max_wait_s=60)
        assert await terminal.incremental() == "Current Terminal Screen:\n\ntwo\nroot@box:/app#"

    in_terminal(run)


def test_leaving_the_shell_gives_a_fresh_one():
    async def run(terminal):
        await terminal.send_keys("cd /tmp\n", max_wait_s=60)
        await terminal.incremental()
        assert await terminal.send_keys("exit\n", max_wait_s=60)
        assert await terminal.incremental() == "Current Terminal Screen:\n\nroot@box:/app#"
        assert await terminal.send_keys("echo back\n", max_wait_s=60)
        assert (await terminal.screen()).splitlines()[-2:] == ["back", "root@box:/app#"]

    in_terminal(run)


def test_no_keys_means_waiting_only_while_something_runs():
    async def run(terminal):
        started = time.monotonic()
        assert await terminal.send_keys("", max_wait_s=60)
        assert time.monotonic() - started < 30
        await terminal.send_keys("(sleep 1; echo late) &\n", max_wait_s=60)
        await terminal.send_keys("", max_wait_s=60)
        assert "late" in await terminal.screen()

    in_terminal(run)


def test_a_flood_neither_blocks_the_terminal_nor_the_host():
    async def run(terminal):
        assert not await terminal.send_keys("yes 0123456789\n", max_wait_s=1)
        assert await terminal.send_keys("C-c", max_wait_s=60)
        assert "0123456789" in await terminal.screen()

    in_terminal(run)


def test_sixteen_terminals_work_side_by_side():
    async def run(sandbox):
        async def life(i: int) -> None:
            box = await sandbox.open(spec(f"b{i}"))
            terminal = await box.terminal()
            for turn in range(3):
                assert await terminal.send_keys(f"echo {i}-{turn} >> log; tail -n 1 log\n", max_wait_s=60)
                assert (await terminal.screen()).splitlines()[-2] == f"{i}-{turn}"
            await box.close()

        await asyncio.gather(*(life(i) for i in range(16)))

    in_sandbox(run)
