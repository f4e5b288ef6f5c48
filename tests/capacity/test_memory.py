"""The capacity model's arithmetic: invariants over all plans, terms worked by hand, what T1 published."""

import dataclasses
import subprocess
import sys

import pytest

from t1core.capacity.memory import (
    GIB,
    KIB,
    PUBLISHED,
    Coefficients,
    HostLoad,
    Load,
    expert_optimiser_bytes,
    host_bytes,
    pair_bytes,
    role_bytes,
    stage_bytes,
)
from t1core.capacity.plans import Plan, all_plans
from t1core.capacity.published import checks, closed_form
from t1core.capacity.search import USES, fitting, judge, nearest
from t1core.capacity.sizes import NAMED, stage_sizes
from t1core.model import scoring_block
from t1core.model.shape import ModelShape

BIG = NAMED["122b"]
WALL = Load(wall=86_016)
TINY = ModelShape.nano(
    vocab_size=100,
    hidden_size=8,
    num_layers=2,
    full_attention_interval=2,
    num_attention_heads=2,
    num_query_groups=1,
    head_dim=8,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=4,
    linear_value_head_dim=4,
    num_experts=4,
    moe_intermediate_size=2,
    shared_expert_intermediate_size=2,
)


def test_the_optimiser_states_of_experts_are_the_same_under_every_resharding() -> None:
    """12 bytes times all routed experts over all GPUs, whatever the degrees: re-sharding cannot make room there."""
    for num_gpus in (8, 24, 64, 96, 128, 512):
        experts = 12 * stage_sizes(BIG, role="actor", pp=1, stage=0).experts / num_gpus
        plans = list(all_plans(BIG, num_gpus=num_gpus))
        assert len(plans) > 20 and len({plan.ep for plan in plans}) > 3
        for plan in plans:
            for stage in (0, plan.pp - 1):
                held = stage_sizes(BIG, role="actor", pp=plan.pp, stage=stage).experts
                assert expert_optimiser_bytes(held, plan=plan) == pytest.approx(experts, rel=1e-12), plan
                terms = stage_bytes(
                    BIG, role="critic", plan=plan, stage=stage, load=WALL, coefficients=PUBLISHED
                ).terms
                assert terms["expert optimiser"] == pytest.approx(experts, rel=1e-12), plan


def test_parameters_are_counted_as_a_checkpoint_holds_them() -> None:
    # Names and sizes of the tensors of a checkpoint are known to the model's own code, which needs torch.
    count = (
        "import math\n"
        "from t1core.capacity.sizes import NAMED, stage_sizes\n"
        "from t1core.model.checkpoint import hf_sizes\n"
        "for shape in NAMED.values():\n"
        "    total = sum(math.prod(size) for size in hf_sizes(shape).values())\n"
        "    for pp in (1, 4):\n"
        "        stages = [stage_sizes(shape, role='actor', pp=pp, stage=s) for s in range(pp)]\n"
        "        assert sum(stage.total for stage in stages) == total, (shape, pp)\n"
    )
    subprocess.run([sys.executable, "-c", count], check=True)


def test_the_named_models_are_of_the_size_of_their_names() -> None:
    totals = {name: stage_sizes(shape, role="actor", pp=1, stage=0).total for name, shape in NAMED.items()}
    assert [round(totals[name] / 1e9, 2) for name in ("35b", "122b")] == [34.66, 122.11]


def test_a_stage_by_hand() -> None:
    """One GatedDeltaNet and one attention layer of width 8, two stages, TP 1, EP 2, CP 2."""
    # experts: 4 x 3 x 8 x 2 = 192 a layer. GatedDeltaNet: keys 4, values 8, heads 2: 8 x (8 + 16 + 4 + 8) = 288, and
    # (8 + 8) x 4 taps + 4 = 68: 356; shared expert 3 x 8 x 2 = 48; embedding 800. Replicated: norms 16, router 32,
    # gate 8, head norm 4.
    first = stage_sizes(TINY, role="actor", pp=2, stage=0)
    assert (first.experts, first.sharded, first.replicated) == (192, 356 + 48 + 800, 60)
    # attention: 8 x (2 x 16 + 2 x 8 + 16) = 512; head 800; replicated 16 + 32 + 8 + 16 and the last norm's 8.
    last = stage_sizes(TINY, role="actor", pp=2, stage=1)
    assert (last.experts, last.sharded, last.replicated) == (192, 512 + 48 + 800, 80)
    # a critic has a value for each channel and a bias instead of the vocabulary
    critic = stage_sizes(TINY, role="critic", pp=2, stage=1)
    assert (critic.sharded, critic.replicated) == (512 + 48, 80 + 9)
    found = stage_bytes(
        TINY,
        role="actor",
        plan=Plan(pp=2, cp=2, ep=2),
        stage=0,
        load=Load(wall=101),
        coefficients=Coefficients(1000, 7, 6, phases="apart", step_bytes=4, source="by hand"),
    )
    dense = 356 + 48 + 800 + 60
    assert found.terms == {
        "expert weights": 2 * 192 / 2,
        "dense weights": 2 * dense,
        "expert gradients": 4 * 192 / 2,
        "dense gradients": 4 * dense,
        "expert optimiser": 12 * 192 / 2,
        "dense optimiser": 12 * dense / 2,
        "layer inputs": 1 * 2 * 8 * 2 * 51,  # one layer, two micro-batches in flight, 51 tokens
        "activations": 1000 * 51,
        "logits": 0,
        "optimiser step": 4 * (192 / 2 + dense / 2),
        "b0": 7,
    }
    static = sum(found.terms[term] for term in list(found.terms)[:6])
    assert found.peak_bytes == static + 7 + 1632 + 51_000


def test_logits_and_layers_count_together_or_the_larger_of_them() -> None:
    how = dict(role="actor", plan=Plan(), stage=0, load=Load(wall=1000))
    given = dict(alpha_bytes=100, b0_bytes=0, logit_bytes=6, step_bytes=0, source="")
    apart, together = (
        stage_bytes(TINY, coefficients=Coefficients(**given, phases=phases), **how)
        for phases in ("apart", "together")
    )
    # the layers' 100 B x 1,000 tokens beside 6 B x 100 words x 1,000 tokens of logits
    assert together.peak_bytes - apart.peak_bytes == 100_000
    assert apart.breaking_term(apart.peak_bytes - 1) == "logits"
    assert apart.breaking_term(apart.peak_bytes) is None


def test_logits_scored_in_blocks_stop_growing_with_the_row(monkeypatch) -> None:
    """A block of 400 logits is 8 tokens of 50 words a rank. Beside it lie four times 8 numbers of 2 bytes a token and,
    over several blocks, the sum of the vocabulary's gradient."""
    monkeypatch.setattr(scoring_block, "LOGITS", 400)
    given = Coefficients(0, 0, logit_bytes=6, phases="apart", step_bytes=0, source="", scored="blocks")
    sizes = [
        stage_bytes(
            TINY, role="actor", plan=Plan(tp=2), stage=0, load=Load(wall=wall), coefficients=given
        ).terms["logits"]
        for wall in (5, 8, 9, 9000)
    ]
    beside = 4 * 8 * 2
    whole, summed = 6 * 50 * 8, 4 * 50 * 8
    assert sizes == [
        6 * 50 * 5 + 5 * beside,
        whole + 8 * beside,
        *(whole + summed + n * beside for n in (9, 9000)),
    ]


def test_data_parallel_one_forces_expert_parallel_two() -> None:
    plans = [plan for plan in all_plans(BIG, num_gpus=32) if (plan.tp, plan.cp, plan.dp) == (2, 1, 1)]
    assert plans and max(plan.ep for plan in plans) == 2
    assert "it is at most 2 there" in Plan(tp=2, pp=16, ep=4).problem(BIG)
    assert max(plan.ep for plan in all_plans(BIG, num_gpus=64) if (plan.pp, plan.cp) == (4, 4)) == 16


def test_tensor_parallelism_above_two_buys_nothing() -> None:
    assert {plan.tp for plan in all_plans(BIG, num_gpus=64)} == {1, 2}
    assert Plan(tp=4).problem(BIG) == "num_query_groups=2 is not a multiple of tp=4"
    # And by T1's closed form, on as many GPUs: what TP 4 takes from data parallelism makes no static term smaller.
    for pp in (1, 2, 4, 8):
        for cp in (1, 2, 4):
            for dp in (2, 4, 8):
                two, four = (closed_form(Plan(tp=tp, pp=pp, cp=cp, ep=4, dp=dp * 2 // tp)) for tp in (2, 4))
                for term in ("weights and gradients", "expert optimiser", "dense optimiser"):
                    assert four[term] >= two[term]


def test_what_t1_published_is_computed_where_it_can_be_and_labelled_where_it_cannot() -> None:
    by_name = {check.what: check for check in checks()}
    differs = {check.what for check in checks() if check.is_met is False}
    assert differs == {
        "GatedDeltaNet peak at CP 4",
        "GatedDeltaNet peak at CP 8",
        "peak at CP 2 less peak at CP 4",
    }
    underived = {check.what for check in checks() if check.computed is None}
    assert {"peak at CP 2", "peak at CP 4", "crash from the closed form", "step"} <= underived
    assert all(check.note for check in checks())
    for what, value, digits in (
        ("logits at CP 2", 29.84, 2),
        ("logits at CP 4", 14.92, 2),
        ("routes as int32", 1536, 0),
        ("routes as uint8", 384, 0),
        ("alpha", 328.0, 1),
        ("expert optimiser, 64 GPUs", 21.75, 2),
        ("peak at CP 2 less peak at CP 4", 17.6, 1),
        ("rollout, one replica", 58.9, 1),
    ):
        assert round(by_name[what].computed, digits) == value, what
    # The printed form of the logits' term, 4 |V| T / cp, gives neither of the quoted numbers.
    assert round(4 * 248_320 * 86_016 / 2 / GIB, 1) == 39.8


def test_context_parallelism_halves_what_a_row_takes() -> None:
    peaks = [closed_form(Plan(tp=2, cp=cp), wall=33_792)["activations"] / GIB for cp in (1, 2, 4, 8)]
    assert [round(peak, 2) for peak in peaks] == [10.57, 5.29, 2.64, 1.32]


def test_a_cap_below_the_longest_row_changes_nothing() -> None:
    plan = Plan(tp=2, pp=4, cp=4, ep=16, dp=2)
    assert Load(wall=86_016, max_tokens=4096).tokens(plan) == 21_504
    assert Load(wall=86_016, max_tokens=8192).tokens(plan) == 21_504
    assert Load(wall=16_000, max_tokens=8192).tokens(plan) == 8192


def test_taking_turns_needs_the_larger_of_two_and_staying_needs_both() -> None:
    plan = Plan(tp=2, pp=4, cp=4, ep=16, dp=2)
    actor, critic = (
        role_bytes(BIG, role=role, plan=plan, load=WALL, coefficients=PUBLISHED)
        for role in ("actor", "critic")
    )
    turns = pair_bytes(actor, critic, offload=True)
    stay = pair_bytes(actor, critic, offload=False)
    for stage in range(4):
        assert turns[stage][0] == max(actor[stage].peak_bytes, critic[stage].peak_bytes)
        assert stay[stage][0] == max(
            actor[stage].peak_bytes + critic[stage].static_bytes,
            critic[stage].peak_bytes + actor[stage].static_bytes,
        )
    verdict = judge(BIG, plan, load=WALL, coefficients=PUBLISHED, limit_bytes=70 * GIB)
    assert [verdict.fits(use) for use in USES] == [True, True, True, False]
    assert verdict.breaking_term("pair resident") == "the other network"


def test_a_plan_that_does_not_fit_names_its_term_and_the_nearest_that_do() -> None:
    how = dict(load=WALL, coefficients=PUBLISHED, limit_bytes=60 * GIB)
    verdict = judge(BIG, Plan(tp=2, pp=4, cp=2, ep=16, dp=4), **how)
    assert verdict.breaking_term("actor alone") == "logits"
    found = fitting(BIG, num_gpus=64, use="actor alone", **how)
    assert found and all(each.fits("actor alone") and each.plan.num_gpus == 64 for each in found)
    first = nearest(verdict.plan, found)[0]
    assert first.plan.cp > 2
    assert all(first.plan.steps_from(verdict.plan) <= each.plan.steps_from(verdict.plan) for each in found)


def test_a_plan_that_the_shape_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="num_layers=48 is not a multiple of pp=5"):
        judge(BIG, Plan(pp=5), load=WALL, coefficients=PUBLISHED, limit_bytes=1)


def test_a_host_by_hand() -> None:
    """Eight GPUs without any parallelism but data: each holds all of TINY."""
    plan = Plan(dp=8)
    actor = stage_sizes(TINY, role="actor", pp=1, stage=0).total
    critic = stage_sizes(TINY, role="critic", pp=1, stage=0).total
    host = HostLoad(
        gpus_per_host=8, num_hosts=3, num_boxes=100, box_bytes=5, batch_tokens=10, num_snapshots=2
    )
    found = host_bytes(TINY, plan=plan, load=Load(wall=8), host=host, offload=True)
    assert found == {
        "offloaded actor": 8 * (2 * actor + 12 * actor / 8),
        "offloaded critic": 8 * (2 * critic + 12 * critic / 8),
        "behaviour snapshots": 8 * 2 * 2 * actor,
        "boxes": 34 * 5,
        "routes of a batch": 10 * 2 * 2,
    }
    kept = host_bytes(TINY, plan=plan, load=Load(wall=8), host=host, offload=False)
    assert kept["offloaded actor"] == kept["offloaded critic"] == 0


def test_alpha_is_what_one_layer_took_of_one_row() -> None:
    assert PUBLISHED.alpha_bytes / KIB == 328
    assert dataclasses.asdict(PUBLISHED)["phases"] == "together"


def test_no_torch_is_loaded_to_plan() -> None:
    loaded = (
        "import sys\n"
        "import t1core.capacity.report, t1core.capacity.fit\n"
        "assert not {'torch', 'ray', 'megatron'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", loaded], check=True)
