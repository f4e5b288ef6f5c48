"""The runner on a real kernel: copies appear whole, output streams, a failing cell is named and nothing is
lost.
"""

import os
import re
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest

from t1core.campaign.notebook import CellFailed, run_notebook
from tests.notebooks.written_notebook import LAST, write_notebook


def test_a_notebook_runs_with_its_parameters_and_leaves_a_copy_and_a_twin_that_loads_nothing(tmp_path, capfd):
    source = write_notebook(
        tmp_path / "n.ipynb",
        "import sys\nprint('step', seed, type(lr).__name__)",
        "print(sys.executable)",
        parameters="seed: int = 0  # which run\nlr: float = 1e-6  # rate",
    )
    before = source.read_bytes()
    executed = run_notebook(
        source, parameters={"seed": 3, "lr": "2e-6"}, output=tmp_path / "out" / "done.ipynb"
    )
    assert source.read_bytes() == before
    streamed = capfd.readouterr().out
    assert "step 3 float" in streamed
    assert sys.executable in streamed
    copy = nbformat.read(executed.notebook, as_version=4)
    assert any("step 3 float" in str(cell.get("outputs")) for cell in copy.cells)
    html = executed.html.read_text()
    assert "step 3 float" in html
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    assert "@import" not in html
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["done.html", "done.ipynb"]


def test_a_failing_cell_is_named_and_what_ran_is_kept(tmp_path):
    source = write_notebook(tmp_path / "n.ipynb", "print('before')", "\n1 / seed", "print('after')")
    with pytest.raises(CellFailed, match=r"cell 6 \('1 / seed'\) failed: ZeroDivisionError") as raised:
        run_notebook(source, parameters={"seed": 0}, output=tmp_path / "out.ipynb")
    assert raised.value.cell == 6
    text = raised.value.executed.notebook.read_text()
    assert "before" in text
    assert "ZeroDivisionError" in raised.value.executed.html.read_text()


def test_a_kernel_that_dies_is_an_error_that_names_the_cell(tmp_path):
    source = write_notebook(tmp_path / "n.ipynb", "print('before')", "import os\nos.kill(os.getpid(), 9)")
    with pytest.raises(CellFailed, match=r"cell 6 \('import os'\) failed: the kernel died") as raised:
        run_notebook(source, parameters={}, output=tmp_path / "out.ipynb")
    assert "before" in raised.value.executed.notebook.read_text()


def test_bad_parameters_are_refused_before_a_kernel_starts_and_leave_nothing(tmp_path):
    source = write_notebook(tmp_path / "n.ipynb", "print(seed)")
    with pytest.raises(ValueError, match="no parameter sed"):
        run_notebook(source, parameters={"sed": 1}, output=tmp_path / "out" / "x.ipynb")
    with pytest.raises(ValueError, match="does not exist"):
        run_notebook(tmp_path / "none.ipynb", parameters={}, output=tmp_path / "out" / "x.ipynb")
    with pytest.raises(ValueError, match=r"ends in \.ipynb"):
        run_notebook(source, parameters={}, output=tmp_path / "out" / "x.html")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_runner_keeps_what_ran_and_leaves_no_kernel(tmp_path):
    source = write_notebook(
        tmp_path / "n.ipynb", "print('before', flush=True)\nimport time\ntime.sleep(60)", last=LAST
    )
    code = (
        "from t1core.campaign.notebook import run_notebook\n"
        f"run_notebook({str(source)!r}, parameters={{}}, output={str(tmp_path / 'out.ipynb')!r})"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert "before" in runner.stdout.readline()
    kernels = psutil.Process(runner.pid).children(recursive=True)
    assert kernels
    os.kill(runner.pid, signal.SIGINT)
    runner.communicate(timeout=120)
    assert runner.returncode != 0
    _, alive = psutil.wait_procs(kernels, timeout=60)
    assert not alive
    deadline = time.monotonic() + 5
    while not (tmp_path / "out.ipynb").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "before" in (tmp_path / "out.ipynb").read_text()
