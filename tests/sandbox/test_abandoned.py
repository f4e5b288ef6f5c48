"""What a killed process left in its block goes away; what a living one holds stays."""

import subprocess
import sys

from t1core.sandbox.state import StateBlock, clear_abandoned

HOLDER = """
from t1core.sandbox.state import StateBlock
claim = StateBlock().claim()
(claim.path / "file").write_text("left")
(claim.path / "closed").mkdir()
(claim.path / "closed").chmod(0)
print(claim.path, flush=True)
input()
"""


def test_only_the_blocks_of_processes_that_are_gone_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("T1CORE_BOX_DIR", str(tmp_path))
    clear_abandoned()
    mine = StateBlock()
    kept = mine.claim().path
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    left = holder.stdout.readline().strip()
    assert left == str(tmp_path / "block-1" / "0")
    clear_abandoned()
    assert (tmp_path / "block-1" / "0" / "file").exists()
    holder.kill()
    holder.communicate()
    clear_abandoned()
    assert not (tmp_path / "block-1").exists()
    assert kept.is_dir()
    mine.close()
    assert StateBlock().path == tmp_path / "block-0", "the locks are free again"
