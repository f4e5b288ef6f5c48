"""T1's closed form of memory, and what it published beside what arithmetic gives.

b = (6/pp)(P_e/ep + P_d) + 12 P_e/G + 12 P_d/(pp dp) + alpha T/cp + c |V| T/(tp cp) [last stage] + b0

in which dense weights are replicated over tp (stock slime gathers GatedDeltaNet to full length), P_e and P_d count
routed experts and the rest, and c is 6: bf16 logits and their fp32 copy. The paper prints 4 |V| T/cp, which does not
give its own 29.8 and 14.9.
"""

from dataclasses import dataclass

from t1core.capacity.memory import GIB, KIB, expert_optimiser_bytes, route_bytes
from t1core.capacity.plans import Plan, widest_ep
from t1core.capacity.sizes import NAMED, attention_size, delta_net_size, expert_size

P_EXPERTS, P_DENSE = 116.0e9, 5.86e9
WALL, VOCABULARY = 86_016, 248_320
ALPHA_BYTES = 328 * KIB


def closed_form(
    plan: Plan,
    *,
    wall: int = WALL,
    is_last: bool = True,
    alpha_bytes: float = ALPHA_BYTES,
    b0_bytes: float = 0.0,
    experts: float = P_EXPERTS,
    dense: float = P_DENSE,
) -> dict[str, float]:
    """Bytes of one GPU by term."""
    return {
        "weights and gradients": 6 / plan.pp * (experts / plan.ep + dense),
        "expert optimiser": expert_optimiser_bytes(experts / plan.pp, plan=plan),
        "dense optimiser": 12 * dense / (plan.pp * plan.dp),
        "activations": alpha_bytes * wall / plan.cp,
        "logits": 6 * VOCABULARY * wall / (plan.tp * plan.cp) if is_last else 0.0,
        "b0": b0_bytes,
    }


@dataclass(frozen=True)
class Check:
    """A published number. computed None: nothing published lets it be derived; `note` says why, or how it was."""

    what: str
    quoted: float
    unit: str
    computed: float | None
    note: str

    @property
    def is_met(self) -> bool | None:
        """Within one per cent; None where there is nothing to compare."""
        return None if self.computed is None else abs(self.computed - self.quoted) <= 0.01 * abs(self.quoted)


def checks() -> list[Check]:
    """Every number on memory and time that T1 published, with what it can be derived from."""
    shape = NAMED["122b"]
    cp4, cp2 = Plan(tp=2, pp=4, cp=4, ep=16, dp=2), Plan(tp=2, pp=4, cp=2, ep=16, dp=4)
    logits = {plan.cp: closed_form(plan)["logits"] / GIB for plan in (cp2, cp4)}
    embedding = shape.vocab_size * shape.hidden_size
    experts = shape.num_layers * expert_size(shape)
    attention = 12 * attention_size(shape)
    delta_net = 36 * delta_net_size(shape)
    shared = shape.num_layers * 3 * shape.hidden_size * shape.shared_expert_intermediate_size
    router = shape.num_layers * shape.num_experts * shape.hidden_size
    total = experts + 2 * embedding + attention + delta_net + shared + router
    once = 36 * shape.hidden_size * (2048 + 3 * 8192)
    static = sum(
        closed_form(cp4)[term] for term in ("weights and gradients", "expert optimiser", "dense optimiser")
    )
    crash = Plan(tp=2, pp=8, cp=1, ep=4, dp=2)
    crash_static = sum(list(closed_form(crash, is_last=False).values())[:3]) / GIB
    peaks = (sum(closed_form(cp2).values()) - sum(closed_form(cp4).values())) / GIB
    one_rank = Plan(tp=2, pp=16, dp=1)
    return [
        Check("routed experts", 116.0, "B", experts / 1e9, "48 layers x 256 x 3 x 3072 x 1024"),
        Check(
            "all parameters",
            121.4,
            "B",
            (total - embedding) / 1e9,
            "less one embedding; all of them are 122.1 B",
        ),
        Check(
            "dense parameters",
            5.86,
            "B",
            (2 * embedding + attention + once + shared) / 1e9,
            "router left out, GatedDeltaNet's query and key projection counted once",
        ),
        Check(
            "routed experts' share",
            95.5,
            "%",
            100 * experts / (total - embedding),
            "of all less one embedding",
        ),
        Check("GatedDeltaNet", 2.94, "B", once / 1e9, f"as quoted; all of it is {delta_net / 1e9:.3f} B"),
        Check("logits at CP 2", 29.84, "GiB", logits[2], "6 B x 86,016 x 248,320 / (TP 2 x CP)"),
        Check("logits at CP 4", 14.92, "GiB", logits[4], "the same"),
        Check("routes as int32", 1536, "B/token", route_bytes(shape, bytes_per_id=4), "48 x 8 x 4"),
        Check("routes as uint8", 384, "B/token", route_bytes(shape, bytes_per_id=1), "48 x 8; t1core's"),
        Check("routes of 32,768 tokens", 48.0, "MiB", 32_768 * 1536 / 2**20, "as int32"),
        Check("alpha", 330, "KiB/token", 10.57 * GIB / 33_792 / KIB, "10.57 GiB at T = 33,792"),
        Check("GatedDeltaNet peak, CP 1 over CP 4", 3.92, "x", 10.57 / 2.70, "from the two quoted peaks"),
        Check("GatedDeltaNet peak at CP 2", 5.3, "GiB", 10.57 / 2, "a half"),
        Check("GatedDeltaNet peak at CP 4", 2.70, "GiB", 10.57 / 4, "a quarter; quoted 2% above it"),
        Check("GatedDeltaNet peak at CP 8", 1.35, "GiB", 10.57 / 8, "an eighth; quoted 2% above it"),
        Check("widest EP", 16, "ranks", widest_ep(shape, stage_ranks=cp4.stage_ranks), "TP 2 x CP 4 x DP 2"),
        Check(
            "EP at DP 1", 2, "ranks", widest_ep(shape, stage_ranks=one_rank.stage_ranks), "TP 2 x CP 1 x DP 1"
        ),
        Check("experts a GPU at EP 2", 128, "", shape.num_experts / 2, "256 / 2"),
        Check("micro-batches a rank", 256, "", 512 / cp4.dp, "512 rows over DP 2"),
        Check(
            "expert optimiser, 64 GPUs", 21.75, "GB", closed_form(cp4)["expert optimiser"] / 1e9, "12 P_e / G"
        ),
        Check("expert optimiser, 32 GPUs", 43.5, "GB", 12 * P_EXPERTS / 32 / 1e9, "the same"),
        Check("expert optimiser, 48 GPUs", 29.0, "GB", 12 * P_EXPERTS / 48 / 1e9, "the same"),
        Check("peak at CP 2 less peak at CP 4", 18.5, "GiB", peaks, "100.3 - 81.8; if raising CP halves DP"),
        Check("crash", 91.18, "GiB", 90.56 + 632 / 1024, "90.56 GiB used and 632 MiB asked for"),
        Check(
            "crash from the closed form",
            91.18,
            "GiB",
            None,
            f"{crash_static:.1f} GiB static and 20.6 of activations leave 1.6 for b0 if 32 of 56 GPUs train at PP 8, "
            "EP 4; the plan is not published",
        ),
        Check(
            "peak at CP 4",
            81.8,
            "GiB",
            None,
            f"{static / GIB:.1f} static + {closed_form(cp4)['activations'] / GIB:.1f} + 14.9 GiB and b0; neither "
            "the plan nor b0 is published",
        ),
        Check("peak at CP 2", 100.3, "GiB", None, "as at CP 4"),
        Check("memory of a GPU", 95, "GiB", None, "of the machine"),
        Check("host memory used with 260 workers", 259, "GB", None, "observed, of 2,265 GB"),
        Check(
            "boxes a node", 70, "", 560 / 8, "560 over the 8 nodes of 64 sampling GPUs; up to 94 were allowed"
        ),
        Check(
            "summary over the window",
            717,
            "tokens",
            78_541 + 8_192 - WALL,
            "78,541 of prompt and 8,192 asked for",
        ),
        Check("first micro-batch", 489, "s", None, "compilation, observed; 22 s once warm"),
        Check("rollout, one replica", 58.9, "min", 256 / 4.35, "256 groups at 4.35 a minute"),
        Check("rollout, three replicas", 19.6, "min", 58.9 / 3, "a third"),
        Check("step with three replicas", 23, "min", None, "training's share is not published"),
        Check(
            "step",
            57,
            "min",
            None,
            "16 min rollout and 41 training are 41 when they overlap and 57 when they do not",
        ),
    ]
