"""What every off-policy correction would do to this batch, measured whether or not it is applied."""

from dataclasses import replace

import torch

from t1core.rl import effective_sample_frac, row_log_ratio, vetoed
from t1core.train.streams import BatchStreams
from t1core.train.surrogate import (
    SurrogateSettings,
    divergence_keep,
    importance_weights,
    trust_region,
)


def weight_metrics(
    denominator: torch.Tensor, *, streams: BatchStreams, settings: SurrogateSettings
) -> dict[str, float]:
    """The weights of the denominator's policy over the engine's, and what each scheme would clip or drop.

    Fractions are of the batch's loss tokens, `mis_veto_row_frac` of its rows.
    """
    chosen, mask = settings.off_policy, streams.mask
    weights = importance_weights(denominator, streams=streams, chosen=chosen)
    ratio = weights["decoupled"]
    metrics = {
        "off_policy/weight_mean": float(ratio[mask].mean()),
        "off_policy/weight_max": float(ratio[mask].max()),
        "off_policy/weight_ess_frac": effective_sample_frac(ratio, mask=mask),
        "off_policy/tis_clip_frac": _share(weights["tis"] != ratio, mask),
        "off_policy/mis_veto_row_frac": _vetoed_rows(ratio, streams=streams, veto=chosen.mis_veto),
    }
    for name in ("icepop", "mis_token", "mis_sequence", "mis_geometric"):
        metrics[f"off_policy/{name}_drop_frac"] = _share(weights[name] == 0, mask)
    return metrics


def objective_metrics(
    live: torch.Tensor,
    *,
    denominator: torch.Tensor,
    advantages: torch.Tensor,
    streams: BatchStreams,
    settings: SurrogateSettings,
) -> dict[str, float]:
    """What GSPO's clip, each divergence mask and SAT would do to the update from `live` log-probs [T] onwards."""
    mask, chosen = streams.mask, settings.off_policy
    row = row_log_ratio(live - denominator, mask=mask, rows=streams.rows, num_rows=streams.num_rows).exp()
    above = (row > 1 + chosen.gspo_eps_clip_high) & (advantages > 0)
    below = (row < 1 - chosen.gspo_eps_clip) & (advantages < 0)
    metrics = {"off_policy/gspo_clip_frac": _share(above | below, mask)}
    for name, keep in divergence_keep(live, denominator, advantages, chosen).items():
        metrics[f"off_policy/{name}_mask_frac"] = _share(~keep, mask)
    curve = "sat_continuous" if chosen.trust_region == "fixed" else chosen.trust_region
    sat = replace(
        settings,
        off_policy=chosen.model_copy(update={"trust_region": curve, "policy_loss": "ppo"}),
    )
    trust = trust_region(live - streams.rollout_logprobs, settings=sat, streams=streams)
    assert trust is not None
    return metrics | {
        "off_policy/sat_quantile": trust.quantile,
        "off_policy/sat_contract_frac": _share(trust.contracted, mask),
    }


def _share(which: torch.Tensor, mask: torch.Tensor) -> float:
    return float(which[mask].double().mean())


def _vetoed_rows(ratio: torch.Tensor, *, streams: BatchStreams, veto: float) -> float:
    usable = streams.mask & (ratio > 0)
    bad = vetoed(ratio, mask=usable, rows=streams.rows, num_rows=streams.num_rows, veto=veto)
    return len(streams.rows[bad].unique()) / streams.num_rows
