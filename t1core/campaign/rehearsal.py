"""`--dry-run`: every check that can be made before anything is started or written.

The nano model's campaign is checked against this machine. A campaign of a model that is named is built instead, object
by object (`dry_run`), which this machine need not be able to hold.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from t1core.campaign.notebook import declared_parameters, read_spec
from t1core.campaign.notebook_parameters import check_parameters
from t1core.config import CampaignConfig, load_config


def campaign_lines(config: CampaignConfig) -> Iterator[str]:
    """What a campaign would do. ValueError for what can't be done: by this machine, by a pool or checkpoint that was
    named, or by the objects that the campaign is made of.
    """
    if config.model.actor_path:
        from t1core.campaign.dry_run import dry_run

        plan = dry_run(config)
        yield from plan.lines
        if plan.refusal:
            raise ValueError(f"the plan above can be built and not started: {plan.refusal}")
        return
    from t1core.campaign.asset import cache_root
    from t1core.campaign.preflight import check_machine, check_plan
    from t1core.tasks.pool import Pool

    check_machine(config)
    rollout = config.rollout
    yield "settings and machine hold"
    if config.tasks.pool:
        pool, said = Pool.open(config.tasks.pool), []
        check_plan(config, pool, say=said.append)
        yield from said
        yield f"tasks   {pool.directory}: " + ", ".join(
            f"{split} {len(pool.split(split))}" for split in pool.splits
        )
    else:
        yield f"tasks   the practice pool, below {cache_root()}"
    yield "actor   the nano model after its supervised start"
    yield (
        f"steps   {config.num_steps}, each trained on {rollout.rollout_batch_size} of at most "
        f"{rollout.over_sampling_batch_size} trials, {rollout.max_live_trials} at once"
    )
    yield from (f"EXPERIMENT  {line}" for line in config.experiments)
    yield f"run     {Path(config.run_root).resolve() / config.name}/<name of the run>"
    yield "nothing was started or written"


def notebook_lines(spec: Path, *, changes: Iterable[str]) -> Iterator[str]:
    """What a campaign file would execute. ValueError for a parameter or a setting that is wrong."""
    changed = {}
    for change in changes:
        name, separator, text = change.partition("=")
        if not separator:
            raise ValueError(f"parameter {change!r} is not of the form name=value")
        changed[name.strip()] = text
    plan = read_spec(spec, changes=changed)
    declared = declared_parameters(plan.notebook)
    given = check_parameters(declared, plan.parameters)
    yield f"notebook  {plan.notebook}"
    values = {name: given.get(name, one.default) for name, one in declared.items()}
    for name, value in values.items():
        yield f"  {name} = {value!r}" + ("" if name in given else "  (default)")
    if {"preset", "overrides"} <= values.keys() and not values.get("run_path"):
        fields = {name: values[name] for name in ("name", "seed", "run_root") if name in values}
        yield from campaign_lines(load_config(values["preset"], values["overrides"], **fields))
    else:
        yield "nothing was started or written"
