"""The report on a pool, through the runner that executes campaigns' notebooks."""

from pathlib import Path

from t1core.campaign.notebook import run_notebook
from t1core.pools.verdict import Standing, Verdict
from t1core.tasks.practice.pool import generate_pool

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "pool_report.ipynb"


def test_it_reports_on_a_pool_and_its_audit(tmp_path):
    pool = generate_pool(tmp_path / "pool", tasks_per_family=1, heldout_per_family=1, heldout_family_tasks=1)
    entry = pool.split("train")[0]
    verdict = Verdict(entry.task_id, entry.content_hash, entry.family, Standing.ACCEPT, (), nop_passed=())
    (tmp_path / "audit.jsonl").write_text(verdict.to_line() + "\n")
    executed = run_notebook(
        NOTEBOOK,
        parameters={"pool_path": str(pool.directory), "audit_path": str(tmp_path / "audit.jsonl")},
        output=tmp_path / "out.ipynb",
    )
    page = executed.html.read_text()
    assert "no evaluation was named" in page and "BROKEN" not in page
    assert "every task has a test" in page and "suggested_scale=" in page
