"""The rubric: T1's weights, and a verdict worked by hand at each of its edges."""

import pytest
from pydantic import ValidationError

from t1core.pools.llm.rubric import CRITICAL, DIMENSIONS, AuditAnswer, HardReject, Rubric
from t1core.pools.verdict import Standing
from tests.pools.scripted_endpoint import audit_answer

QUOTED = {"quote": "x", "why": "y"}


def answered(score=5, **scores):
    rejects = scores.pop("rejects", None)
    return AuditAnswer.model_validate_json(audit_answer(score, rejects=rejects, **scores))


def test_the_weights_are_t1s_and_make_a_whole():
    weights = {name: weight for name, (weight, _) in DIMENSIONS.items()}
    assert sum(weights.values()) == 100
    assert weights["instruction_verifier_alignment"] == 20
    assert weights["verifier_fairness"] == weights["solution_correctness"] == 15
    by_facet = [
        sum(weights[name] for name in names)
        for names in (
            ("instruction_verifier_alignment", "verifier_fairness", "verifier_coverage"),
            ("solution_correctness", "solution_reasonableness"),
            ("instruction_clarity", "self_contained"),
            ("training_value",),
        )
    ]
    assert by_facet == [45, 25, 20, 10]
    assert len(HardReject) == 4


def test_quality_is_the_weighted_mean_over_the_scale():
    rubric = Rubric()
    assert rubric.quality(answered(5)) == 1 and rubric.quality(answered(1)) == 0
    assert rubric.quality(answered(4)) == 0.75  # exactly, or all fours would be accepted by luck of rounding
    # All fives but alignment 3: 1 - 0.20 * 2 / 4.
    assert rubric.quality(answered(5, instruction_verifier_alignment=3)) == 0.9


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (answered(5), Standing.ACCEPT),
        (answered(4), Standing.ACCEPT),
        (answered(4, training_value=3), Standing.BORDERLINE),
        (answered(3), Standing.BORDERLINE),
        (answered(3, training_value=2), Standing.REJECT),  # quality 0.475
        (answered(5, verifier_coverage=2), Standing.REJECT),  # quality 0.925 and below a minimum
        (answered(5, training_value=1), Standing.ACCEPT),  # not critical
        (answered(5, rejects=[{"kind": "verifier_too_weak", **QUOTED}]), Standing.REJECT),
    ],
)
def test_the_standing_follows_from_the_answer(answer, standing):
    assert Rubric().standing(answer) is standing


def test_every_critical_dimension_is_held_to_the_minimum():
    for name in CRITICAL:
        answer = answered(5, **{name: 2})
        assert Rubric().below_minimum(answer) == (name,)
        assert Rubric(minimum=2).standing(answer) is Standing.ACCEPT


@pytest.mark.parametrize("wrong", [0, 6, 4.5, "4", True])
def test_a_score_off_the_scale_is_no_answer(wrong):
    with pytest.raises(ValidationError):
        AuditAnswer.model_validate_json(audit_answer(5, self_contained=wrong))


def test_a_missing_dimension_and_an_unknown_reason_are_no_answer():
    with pytest.raises(ValidationError):
        AuditAnswer.model_validate_json(audit_answer(5).replace("training_value", "value"))
    with pytest.raises(ValidationError):
        AuditAnswer.model_validate_json(audit_answer(5, rejects=[{"kind": "ugly", **QUOTED}]))


@pytest.mark.parametrize(
    "change", [{"accept_at": 0.4}, {"borderline_at": -0.1}, {"accept_at": 1.1}, {"minimum": 0}]
)
def test_thresholds_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        Rubric(**change)
