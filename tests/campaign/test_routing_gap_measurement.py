"""The routing gap measured for real on models of one attention interval: conditions complete, controls kept."""

import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.analysis.routing_gap import SAMPLED, WHOLE, replay_effect
from t1core.campaign.demonstrations import demonstration_texts
from t1core.campaign.routing_gap import PRECISIONS, GapPlan, measure_routing_gap
from t1core.model.checkpoint import init_hf
from t1core.model.shape import ModelShape


@pytest.mark.slow
def test_every_condition_is_measured_and_the_controls_hold(tmp_path):
    train_tokenizer(
        demonstration_texts(seed=0, count=100, wording=WORDINGS["compact"]), tmp_path, vocab_size=384
    )
    init_hf(ModelShape.nano(vocab_size=384, hidden_size=64, moe_intermediate_size=32), tmp_path, seed=0)
    plan = GapPlan(
        depths=(4,),
        dense_depths=(4,),
        supervised_steps=3,
        supervised_tokens=256,
        num_rows=3,
        long=(64, 8),
        short=(8, 4),
    )
    frames = list(measure_routing_gap(tmp_path, plan=plan))
    assert [frame["model"].iloc[0] for frame in frames] == ["policy", "experts", "dense"]
    for frame in frames:
        whole = frame[frame["layer"] == WHOLE]
        assert len(whole) == len(PRECISIONS) * 2 * 2 * 2, "precisions, horizons, weights, routings"
        assert set(whole[whole["horizon"] == "long"]["tokens"]) == {3 * 8}
        same = replay_effect(frame).query("engine == 'fp32' and trainer == 'fp32'")
        assert (same[same["weights"] == SAMPLED]["replayed"] < 1e-4).all()
        assert (same[same["weights"] != SAMPLED]["replayed"] > 1e-6).all(), "the step moved nothing"
    assert (frames[2]["flip_frac"] == 0).all()
