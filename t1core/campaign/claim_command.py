"""`t1 claim`: run the arms of claims, keep what their notebook needs, and say how each claim stands."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t1core.analysis.claims import Judged, judge, measured, overall
from t1core.campaign.claim import Claim, Form, read_claims
from t1core.campaign.claim_results import ClaimResults, keep_results, results_of
from t1core.campaign.claim_runs import FOLDER, ArmRun, plan_runs, run_all
from t1core.config import CampaignConfig

Say = Callable[[str], None]


def run_claims(
    paths: Sequence[Path],
    *,
    form: Form,
    num_jobs: int,
    root: Path,
    changes: Sequence[str] = (),
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    until_s: float = 0.0,
    keep: Path | None = None,
    say: Say = print,
) -> bool:
    """Run what has not finished of the claims in `paths`; whether all has. ValueError before anything starts for a
    wrong claim, arm or setting.

    The results of each claim so far lie in `<keep>/<claim>.zip` from the first finished run on; without `keep` beside
    the runs.
    """
    from t1core.campaign.assets import prepare
    from t1core.campaign.preflight import check_machine

    claims = read_claims(paths)

    def assets(config: CampaignConfig):
        check_machine(config)
        return prepare(config, say=say)

    runs = plan_runs(claims, form=form, root=root, assets=assets, changes=changes, arms=arms, seeds=seeds)
    say(f"{len(runs)} runs of {len(claims)} claims, {num_jobs} at once, in {root.resolve()}")

    folder = root / FOLDER if keep is None else keep

    def kept(done: Sequence[Claim]) -> None:
        for claim in done:
            keep_results(claim, results_of(claim, runs, form=form), folder / f"{claim.name}.zip")

    def finished(run: ArmRun) -> None:
        names = {name for name, _ in run.claims}
        kept([claim for claim in claims if claim.name in names])

    left = run_all(runs, num_jobs=num_jobs, until_s=until_s, say=say, finished=finished)
    kept(claims)
    for claim in claims:
        for line in verdict_lines(claim, results_of(claim, runs, form=form)):
            say(line)
    say(f"results: {folder}/<claim>.zip; t1 notebook papermill/claims.yaml --set name=<claim> shows one")
    return not left


def judged_contrasts(claim: Claim, results: ClaimResults) -> list[Judged]:
    """Each contrast of a claim beside its data."""
    measures = tuple(dict.fromkeys([claim.measure, *(one.measure for one in claim.contrasts if one.measure)]))
    values = measured(results.frames, measures=measures)
    return [judge(one, values, measure=one.measure or claim.measure) for one in claim.contrasts]


def verdict_lines(claim: Claim, results: ClaimResults) -> Iterator[str]:
    """How a claim stands: its verdict and the contrasts that it rests on."""
    judged = judged_contrasts(claim, results)
    yield f"{claim.name}: {claim.says}"
    yield from (f"  {one}" for one in judged)
    verdict = f"  verdict: {overall(judged)}"
    if results.form == "short":
        verdict += " (short form: it shows that everything runs, and decides nothing)"
    elif claim.needs_scale:
        verdict += f"; needs scale: {claim.needs_scale}"
    yield verdict
    if results.unfinished:
        yield f"  not finished: {', '.join(results.unfinished)}"
