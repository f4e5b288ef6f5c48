"""What an audit by a model came to, in lines: standings, repairs, reasons, cost, failures, agreement."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from t1core.pools.llm.endpoint import Cost
from t1core.pools.llm.model_verdict import FAILED, ModelVerdict
from t1core.pools.llm.rubric import DIMENSIONS
from t1core.pools.verdict import Standing


def verdict_line(verdict: ModelVerdict) -> str:
    """One task: standing, quality, why."""
    judgement = verdict.judgement
    parts = [] if judgement is None else [f"quality {judgement.quality:.2f}"]
    if judgement is not None:
        parts += [one["kind"] for one in judgement.hard_rejects]
        parts += [f"{name} {judgement.scores[name]}" for name in judgement.below_minimum]
    if verdict.num_kept_repairs:
        parts.append(f"after repair, before {verdict.judgements[0].standing}")
    if verdict.error:
        parts.append(verdict.error)
    return f"{verdict.standing:<10} {verdict.task_id}  {', '.join(parts)}"


def audit_lines(head: Mapping[str, Any], verdicts: Sequence[ModelVerdict]) -> Iterator[str]:
    """The whole audit. Nothing that failed is left out of a number without its count beside it."""
    standings = Counter(verdict.standing for verdict in verdicts)
    names = (*Standing, FAILED)
    addresses = ", ".join(sorted({verdict.endpoint for verdict in verdicts}))
    yield f"model      {head['model']} at {addresses or 'no address yet'}"
    yield f"tasks      {len(verdicts)}: " + ", ".join(f"{standings[name]} {name}" for name in names)
    repaired = [verdict for verdict in verdicts if verdict.repairs]
    kept = sum(verdict.num_kept_repairs > 0 for verdict in repaired)
    yield f"repairs    {len(repaired)} tasks tried, {kept} raised by it"
    judged = [verdict.judgement for verdict in verdicts if verdict.judgement is not None]
    if judged:
        rejects = Counter(one["kind"] for judgement in judged for one in judgement.hard_rejects)
        for kind, number in rejects.most_common():
            yield f"    {kind} {number}"
        for name in DIMENSIONS:
            mean = sum(judgement.scores[name] for judgement in judged) / len(judged)
            yield f"    {name:<32} mean {mean:.2f} of {len(judged)}"
    cost = sum((verdict.cost for verdict in verdicts), Cost())
    yield (
        f"cost       {cost.num_calls} calls, {cost.prompt_tokens} prompt and {cost.completion_tokens} completion "
        f"tokens, {cost.seconds:.1f} s waited for answers"
    )
    failures = ", ".join(f"{number} {kind}" for kind, number in cost.failures.items())
    yield f"failures   {failures or 'none'}" + (
        " (of calls; those made good by asking again, too)" if failures else ""
    )
    ended = Counter(verdict.error_kind for verdict in verdicts if verdict.error)
    for kind, number in ended.most_common():
        yield f"    {number} tasks given up at: {kind}"


def agreement_lines(table: pd.DataFrame) -> Iterator[str]:
    """The agreement table. Kappa is undefined where both always say the same."""
    yield "agreement with the executable audit, on tasks that both judged:"
    shown = table.assign(
        kappa=table["kappa"].map(lambda kappa: f"{kappa:.2f}" if kappa == kappa else "undefined")
    )
    yield from shown.to_string(
        index=False, float_format=lambda value: f"{value:.2f}", na_rep="-"
    ).splitlines()
