"""An evaluation by itself: a real engine, real boxes, real grading, and a score that says how it was measured."""

import pytest

from t1core.campaign.evaluation import evaluate_policy
from t1core.config import load_config
from t1core.config.load import PROTOCOLS, protocol_path
from t1core.store import RunState

QUICK = [
    "agent.max_turns=1", "evaluation.max_turns=2", "evaluation.max_new_tokens=24", "evaluation.attempts=2",
    "evaluation.tasks_per_split=2", "rollout.max_live_trials=4", "evaluation.protocol=quick",
]  # fmt: skip


def test_every_attempt_is_graded_and_the_score_says_how(actor, pool, settings):
    config = load_config("smoke", [*settings, *QUICK])
    said = []
    run = evaluate_policy(config, actor, pool=pool, split="heldout", say=said.append)
    assert run.status().state is RunState.FINISHED
    (score,) = run.scores()
    assert score.is_complete and (score.num_asked, score.num_ran, score.num_tasks) == (4, 4, 2)
    assert score.weights["version"] == 0 and len(score.weights["checksum"]) == 16
    assert (score.protocol, score.limits["max_turns"], score.harness["temperature"]) == ("quick", 2, 1.0)
    trials = run.trials("eval")
    assert len(trials) == 4 and trials["reward"].notna().all() and trials["num_turns"].max() <= 2
    assert trials["task_id"].value_counts().tolist() == [2, 2]
    assert score.resolved == trials["solved"].mean() and "4 of 4 attempts" in said[-1]


@pytest.mark.parametrize("name", sorted(path.stem for path in PROTOCOLS.glob("*.toml")))
def test_the_protocols_load_with_their_own_headline_and_room_for_long_trials(name):
    config = load_config(str(protocol_path(name)))
    assert config.evaluation.protocol == name and config.longest_context_tokens == 131_072
    assert (config.evaluation.headline, config.evaluation.attempts) == {
        "terminal-bench-2.1": ("resolved", 3), "lhtb": ("dense", 1), "tbh": ("resolved", 1),
    }[name]  # fmt: skip
    assert config.agent.max_new_tokens == 32_768


def test_an_unknown_protocol_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"protocol='tb' is not one of lhtb, tbh, terminal-bench-2\.1"):
        protocol_path("tb")
