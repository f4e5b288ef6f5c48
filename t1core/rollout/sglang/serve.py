"""Runs under SGLang's own Python, by path: prints the environment's versions, or becomes the server.

    python serve.py versions
    python serve.py launch --model-path ...      the server; killed as a group when standard input closes

Standard input is a pipe whose other end the starting process holds, so the server goes when that process
goes, however it went. Nothing here may import t1core or need more than Python 3.11.
"""

import hashlib
import importlib.machinery
import json
import os
import pathlib
import runpy
import signal
import sys
import threading

SHARED_MEMORY = "/dev/shm/"
CHECKER = "sglang.srt.utils.weight_checker"


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


def shared_memory_of(group: int) -> set[str]:
    """Files of shared memory that processes of a group hold. A killed server removes none of its own."""
    held = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if os.getpgid(int(maps.parent.name)) == group:
                places = (line.split(maxsplit=5)[5:] for line in maps.read_text().splitlines())
                held |= {place[0] for place in places if place and place[0].startswith(SHARED_MEMORY)}
        except OSError:  # it has ended
            continue
    return held


def remove_shared_memory(paths: set[str]) -> None:
    """Remove these files, as far as they are still there."""
    for path in paths:
        pathlib.Path(path).unlink(missing_ok=True)


def die_with_parent() -> None:
    """Kill this process group, with its shared memory, once nobody holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        remove_shared_memory(shared_memory_of(os.getpgrp()))
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="die-with-parent", daemon=True).start()


class HostHashes:
    """Meta-path finder: SGLang's checker hashes parameters as on a CPU, whatever device they are on.

    On CUDA it would take a hash of its own kernel's, which nobody outside can compare with anything.
    """

    @staticmethod
    def find_spec(fullname, path, target=None):
        if fullname != CHECKER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module._hash_tensor = host_hash

        spec.loader.exec_module = exec_module
        return spec


def host_hash(tensor):
    import torch

    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(memoryview(raw)).hexdigest()[:16]


if __name__ in ("__main__", "__mp_main__"):  # SGLang's children are spawned and import this file again
    sys.meta_path.insert(0, HostHashes())

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "versions":
        print(json.dumps(versions()))
    else:
        die_with_parent()
        sys.argv = ["sglang.launch_server", *arguments]
        runpy.run_module("sglang.launch_server", run_name="__main__")
