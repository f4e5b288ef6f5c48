"""setup.sh on machines that lack something: interpreters are tried and not just found, and what is missing is said."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "chmod", "cp", "cut", "dirname", "env", "mkdir", "rm", "sha256sum", "touch")
# Plays an interpreter: notes what it is asked, makes something like an environment, fails at what the test names.
PYTHON = """#!/usr/bin/env bash
here={here}
if [ "$1" = -c ]; then
    case "$2" in *executable*) echo "$0" ;; esac
    exit 0
fi
if [ "$2" = venv ]; then
    made="${{@: -1}}"
    rm -rf "$made" && mkdir -p "$made/bin" && cp "$0" "$made/bin/python" && touch "$made/bin/t1"
    chmod +x "$made/bin/t1"
fi
echo "$*" >>"$here/asked"
[ -e "$here/fails" ] && [[ "$*" == *"$(cat "$here/fails")" ]] && exit 1
exit 0
"""


class Machine:
    """A checkout and a PATH with a few tools, an interpreter that plays along, and all that the sandbox needs."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.checkout = directory / "checkout"
        (self.checkout / "constraints").mkdir(parents=True)
        self.bin.mkdir()
        for name in (
            *("setup.sh", "pyproject.toml"),
            *("constraints/cpu.txt", "constraints/gpu.txt", "constraints/sglang-cpu.txt"),
        ):
            shutil.copy(ROOT / name, self.checkout / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for tool in ("bwrap", "tmux"):
            self.tool(tool, "true")
        self.tool("id", "echo 1000")
        self.tool("python3.12", PYTHON.format(here=directory))
        self.asked_file = directory / "asked"
        self.fails = directory / "fails"

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.write_text(script if script.startswith("#!") else f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def setup(self, *parts: str, **environment: str) -> subprocess.CompletedProcess:
        home = self.checkout.parent / "home"
        return subprocess.run(
            [self.checkout / "setup.sh", *parts], capture_output=True, text=True, timeout=60,
            env={"PATH": str(self.bin), "HOME": str(home)} | environment,
        )  # fmt: skip

    def asked(self) -> list[str]:
        """What interpreters were asked to do since the last call, in short."""
        lines = self.asked_file.read_text().splitlines() if self.asked_file.exists() else []
        self.asked_file.write_text("")
        return ["venv" if " venv " in line else line.split(" -e ")[1] for line in lines]


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def test_it_installs_once_and_again_only_when_what_it_installs_changes(machine):
    assert machine.setup().returncode == 0
    assert machine.asked() == ["venv", ".[dev]"]
    done = machine.setup()
    assert (done.returncode, done.stdout, machine.asked()) == (0, "", [])
    (machine.checkout / "constraints" / "cpu.txt").write_text("numpy==1\n")
    assert machine.setup().returncode == 0
    assert machine.asked() == [".[dev]"]


def test_an_interpreter_that_is_found_but_does_not_run_is_passed_over(machine):
    (machine.bin / "python3.12").rename(machine.bin / "python3")
    machine.tool("python3.12", "echo 'python3.12: command not found' >&2; exit 127")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert machine.asked() == ["venv", ".[dev]"]


def test_without_an_interpreter_that_runs_it_says_what_to_install(machine):
    if any(Path(path).exists() for path in ("/usr/local/bin/python3.12", "/opt/homebrew/bin/python3.12")):
        pytest.skip("this machine has a Python 3.12 at a fixed place, which is found")
    machine.tool("python3.12", "exit 127")
    done = machine.setup()
    assert done.returncode == 3
    assert "needs Python 3.12 with the venv module, and found none that runs" in done.stderr
    assert "apt-get install python3.12-venv" in done.stderr
    assert not (machine.checkout / ".venv").exists()


def test_a_plain_user_is_told_exactly_which_packages_to_install(machine):
    (machine.bin / "tmux").unlink()
    done = machine.setup()
    assert done.returncode == 3
    assert done.stderr == "The sandbox needs tmux. Install with: sudo apt-get install tmux\n"
    (machine.bin / "bwrap").unlink()
    assert "Install with: sudo apt-get install bubblewrap tmux\n" in machine.setup().stderr
    assert machine.asked() == []


def test_root_installs_the_missing_packages_itself(machine):
    (machine.bin / "bwrap").unlink()
    machine.tool("id", "echo 0")
    machine.tool("apt-get", f'echo "$*" >>{machine.checkout}/apt')
    assert machine.setup().returncode == 0
    assert (machine.checkout / "apt").read_text().splitlines() == ["update -qq", "install -y -qq bubblewrap"]


def test_the_gpu_profile_adds_the_fused_kernels_after_torch_and_no_profile_inherits_anothers(machine):
    assert machine.setup().returncode == 0
    machine.asked()
    done = machine.setup(T1CORE_PROFILE="gpu")
    assert done.returncode == 0, done.stderr
    assert machine.asked() == ["venv", ".[dev]", ".[fused]"]
    assert machine.setup().returncode == 0
    assert machine.asked() == ["venv", ".[dev]"]


def test_fused_kernels_that_do_not_build_are_an_error_with_what_they_need(machine):
    machine.fails.write_text(".[fused]")
    done = machine.setup(T1CORE_PROFILE="gpu")
    assert done.returncode == 3
    assert "CUDA 13 toolkit (nvcc" in done.stderr and "unset T1CORE_PROFILE" in done.stderr
    assert machine.setup(T1CORE_PROFILE="gpu").returncode == 3, "a failed set-up is not taken for whole"


def test_an_unknown_profile_is_refused_before_anything_is_made(machine):
    done = machine.setup(T1CORE_PROFILE="sglang-cpu")
    assert (done.returncode, done.stderr) == (3, "T1CORE_PROFILE=sglang-cpu is no profile: use cpu or gpu\n")
    assert machine.asked() == []


def test_sglang_gets_an_environment_of_its_own_with_the_pins_of_its_kind(machine):
    machine.tool("python3.11", PYTHON.format(here=machine.checkout.parent))
    for part, installed in (
        ("sglang-cpu", "--no-deps -r constraints/sglang-cpu.txt"),
        ("sglang", "sglang==0.5.17"),
    ):
        machine.asked_file.write_text("")
        done = machine.setup(part)
        assert done.returncode == 0, done.stderr
        made, pip = machine.asked_file.read_text().splitlines()
        assert made.endswith("venv --clear .venv-sglang") and pip.endswith(installed)
        assert (machine.checkout / ".venv-sglang" / "bin" / "python").exists()
        assert not (machine.checkout / ".venv").exists(), "the other environment is left alone"


def test_a_missing_cpu_build_of_torch_says_where_it_comes_from(machine):
    machine.tool("python3.11", PYTHON.format(here=machine.checkout.parent))
    machine.fails.write_text("-r constraints/sglang-cpu.txt")
    done = machine.setup("sglang-cpu")
    assert done.returncode == 3 and "PIP_EXTRA_INDEX_URL" in done.stderr


def test_an_unknown_part_is_refused(machine):
    done = machine.setup("vllm")
    assert (done.returncode, done.stderr) == (
        3,
        "setup.sh vllm: no such part; give sglang, sglang-cpu or nothing\n",
    )
