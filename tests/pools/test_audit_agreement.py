"""Agreement of the two audits: kappa worked by hand, and who is compared with whom."""

import math

import pytest

from t1core.pools.llm.agreement import agreement_table, cohens_kappa
from t1core.pools.llm.endpoint import Cost
from t1core.pools.llm.model_verdict import Judgement, ModelVerdict
from t1core.pools.llm.report import agreement_lines
from t1core.pools.llm.rubric import AuditAnswer, Rubric
from t1core.pools.verdict import CHECKS, Check, Outcome, Verdict, standing_of
from tests.pools.scripted_endpoint import audit_answer


def by_model(task_id, *, content_hash="h", rejects=(), **scores):
    given = [{"kind": kind, "quote": "q", "why": "w"} for kind in rejects]
    answer = AuditAnswer.model_validate_json(audit_answer(5, rejects=given, **scores))
    judgement = Judgement.of(answer, rubric=Rubric(), prompt_hash="p")
    return ModelVerdict(task_id, content_hash, (judgement,), (), Cost(), "http://e/v1", "now")


def executed(task_id, *, failed=(), skipped=(), content_hash="h"):
    checks = tuple(
        Check(
            name,
            Outcome.FAILED if name in failed else Outcome.SKIPPED if name in skipped else Outcome.PASSED,
        )
        for name in CHECKS
    )
    return Verdict(task_id, content_hash, "family", standing_of(checks), checks)


def test_kappa_is_that_of_the_textbook():
    # 20 both yes, 5 and 10 disagree, 15 both no: observed 0.7, expected 0.5 * 0.6 + 0.5 * 0.4 = 0.5.
    assert cohens_kappa(20, 5, 10, 15) == pytest.approx(0.4)
    assert cohens_kappa(3, 0, 0, 2) == 1
    assert cohens_kappa(0, 2, 2, 0) == -1
    assert math.isnan(cohens_kappa(4, 0, 0, 0)) and math.isnan(cohens_kappa(0, 0, 0, 0))


def test_each_question_compares_what_both_speak_of():
    models = [
        by_model("a", rejects=["verifier_too_weak"]),
        by_model("b", solution_correctness=2),
        by_model("c"),
        by_model("d", rejects=["test_leakage"], verifier_fairness=1),
        by_model("changed"),
        by_model("only the model"),
    ]
    runs = [
        executed("a", failed=["mutants"]),
        executed("b", failed=["attacks"]),
        executed("c", failed=["solution", "order"], skipped=["leakage"]),
        executed("d", failed=["leakage"]),
        executed("changed", content_hash="another"),
    ]
    table = agreement_table(models, executed={v.task_id: v for v in runs}, minimum=3).set_index("question")
    counts = ["num_tasks", "both", "only_model", "only_executed", "neither"]
    assert table.loc["not accepted", counts].tolist() == [4, 3, 0, 1, 0]
    assert table.loc["solution incorrect", counts].tolist() == [4, 0, 1, 1, 2]
    assert table.loc["verifier unfair", counts].tolist() == [4, 0, 1, 1, 2]
    assert table.loc["verifier too weak", counts].tolist() == [4, 1, 0, 1, 2]
    assert table.loc["test leakage", counts].tolist() == [3, 1, 0, 0, 2]  # c was not looked at
    assert table.loc["verifier too weak", "observed"] == 0.75
    assert table.loc["verifier too weak", "kappa"] == pytest.approx(0.5)
    lines = "\n".join(agreement_lines(table.reset_index()))
    assert "test leakage" in lines and "1.00" in lines


def test_a_task_that_the_model_failed_at_is_not_compared():
    failed = ModelVerdict("a", "h", (), (), Cost(), "http://e/v1", "now", error="audit: no", error_kind="cut")
    table = agreement_table([failed], executed={"a": executed("a")}, minimum=3)
    assert (table["num_tasks"] == 0).all() and table["kappa"].isna().all()
    assert "undefined" in "\n".join(agreement_lines(table))
