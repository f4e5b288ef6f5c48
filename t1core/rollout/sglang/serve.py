"""Runs under SGLang's own Python, by path: prints the environment's versions, or becomes the server.

    python serve.py versions
    python serve.py launch --model-path ...      the server; killed as a group when standard input closes

Standard input is a pipe whose other end the starting process holds, so the server goes when that process
goes, however it went. Nothing here may import t1core or need more than Python 3.11.
"""

import json
import os
import pathlib
import runpy
import signal
import sys
import threading


def versions() -> dict:
    """Installed versions (None where absent) and whether the CPU has AMX, for which the stand-ins are
    wrong.
    """
    import importlib.metadata

    found = {}
    for name in ("sglang", "torch", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    cpu = pathlib.Path("/proc/cpuinfo")
    found["has_amx"] = cpu.exists() and "amx_tile" in cpu.read_text()
    return found


def die_with_parent() -> None:
    """Kill this process group once nobody holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="die-with-parent", daemon=True).start()


if __name__ == "__main__":  # SGLang's children are spawned and import this file again
    command, *arguments = sys.argv[1:]
    if command == "versions":
        print(json.dumps(versions()))
    else:
        die_with_parent()
        sys.argv = ["sglang.launch_server", *arguments]
        runpy.run_module("sglang.launch_server", run_name="__main__")
