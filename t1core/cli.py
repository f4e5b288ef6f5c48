"""The `t1` command."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from t1core.campaign import commands, pool_model_commands
from t1core.campaign.commands import Overrides, Preset, RunPath
from t1core.campaign.commands import interruptible as _interruptible
from t1core.campaign.commands import say as _say
from t1core.campaign.pool_commands import pool_app

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

DryRun = Annotated[bool, typer.Option("--dry-run", help="make every check, start and write nothing")]


@app.command()
def prepare(preset: Preset = "quickstart", overrides: Overrides = None) -> None:
    """Make what a campaign needs and is not there yet: runtime, task pool, tokenizer, policy, critic."""
    from t1core.campaign.assets import plays_for_critic
    from t1core.campaign.assets import prepare as make
    from t1core.campaign.preflight import check_machine
    from t1core.config import load_config

    config = load_config(preset, overrides or ())
    check_machine(config, starts_engine=plays_for_critic(config))
    with _interruptible():
        assets = make(config, say=_say)
    _say(f"pool    {assets.pool}\nactor   {assets.actor}\ncritic  {assets.critic or 'cold'}")


@app.command()
def campaign(
    preset: Preset,
    overrides: Overrides = None,
    run_name: Annotated[str | None, typer.Option(help="name of the run directory")] = None,
    dry_run: DryRun = False,
) -> None:
    """Run a campaign in the foreground."""
    from t1core.config import load_config

    config = load_config(preset, overrides or ())  # before the imports that take seconds
    if dry_run:
        from t1core.campaign.rehearsal import campaign_lines

        for line in campaign_lines(config):
            _say(line)
        return
    from t1core.campaign.assets import prepare as make
    from t1core.campaign.campaign import run_campaign
    from t1core.campaign.preflight import check_machine

    check_machine(config)
    with _interruptible():
        run_campaign(config, make(config, say=_say), run_name=run_name, say=_say)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Hugging Face directory with weights and tokenizer")],
    pool: Annotated[Path, typer.Option(help="directory of Harbor tasks")],
    protocol: Annotated[
        str, typer.Option(help="terminal-bench-2.1, lhtb, tbh, or path of a TOML file")
    ] = "terminal-bench-2.1",
    split: Annotated[str | None, typer.Option(help="only the tasks of this split")] = None,
    overrides: Overrides = None,
) -> None:
    """Score a policy on a pool, and keep the score with harness, limits and weights; 1 where it is incomplete."""
    from t1core.campaign.evaluation import evaluate_policy
    from t1core.config.load import load_config, protocol_path

    config = load_config(str(protocol_path(protocol)), overrides or ())
    with _interruptible():
        run = evaluate_policy(config, model.resolve(), pool=pool, split=split, say=_say)
    if not all(score.is_complete for score in run.scores()):
        raise typer.Exit(1)


@app.command("compare-scores")
def compare_scores(
    runs: Annotated[list[Path], typer.Argument(help="run directories with scores")],
) -> None:
    """Tell the scores of several runs, and where they were measured differently."""
    from t1core.analysis.scores import score_table
    from t1core.store import Run

    table = score_table({str(run): Run.open(run).scores() for run in runs})
    _say("no scores" if table.empty else table.round(4).to_string(index=False))


@app.command()
def notebook(
    spec: Annotated[Path, typer.Argument(help="YAML file with a notebook and its parameters")],
    overrides: Annotated[list[str] | None, typer.Option("--set", help="parameter=value")] = None,
    output: Annotated[Path | None, typer.Option(help="where the executed notebook goes")] = None,
    dry_run: DryRun = False,
) -> None:
    """Execute a notebook through papermill, strictly: unknown or ill-typed parameters are refused."""
    if dry_run:
        from t1core.campaign.rehearsal import notebook_lines

        for line in notebook_lines(spec, changes=overrides or ()):
            _say(line)
        return
    from t1core.campaign.execute import execute

    with _interruptible():
        execute(spec, overrides=overrides or (), output=output, say=_say)


@app.command()
def claim(
    claims: Annotated[list[Path], typer.Argument(help="claim files, as in papermill/claims")],
    jobs: Annotated[int, typer.Option(min=1, help="runs at once; each takes about two cores")] = 1,
    form: Annotated[str, typer.Option(help="full, or short: for shape, decides nothing")] = "full",
    root: Annotated[Path, typer.Option(help="where run directories are made")] = Path("runs"),
    overrides: Overrides = None,
    arm: Annotated[list[str] | None, typer.Option(help="only these arms, and what they start from")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="these seeds in place of the claims' own")] = None,
    until: Annotated[float, typer.Option(min=0, help="seconds after which all is ended; 0: none")] = 0.0,
    keep: Annotated[
        Path | None, typer.Option(help="folder for results, a file a claim; else beside the runs")
    ] = None,
) -> None:
    """Run claims as experiments: arms and seeds of each, what has finished not again; 1 where some did not finish."""
    if form not in ("full", "short"):
        raise ValueError(f"--form {form} is not full or short")
    from t1core.campaign.claim_command import run_claims

    with _interruptible():
        is_whole = run_claims(
            claims,
            form=form,
            num_jobs=jobs,
            root=root,
            changes=overrides or (),
            arms=arm or (),
            seeds=seed or (),
            until_s=until,
            keep=keep,
            say=_say,
        )
    if not is_whole:
        raise typer.Exit(1)


@app.command()
def resume(
    run: RunPath,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="begin anew where no checkpoint can be gone on from")
    ] = False,
) -> None:
    """Go on with a run that was interrupted, failed or killed, from its newest whole checkpoint."""
    from t1core.campaign.resume import resume_campaign

    with _interruptible():
        resume_campaign(run, from_start=from_start, say=_say)


@app.command()
def trials(
    run: RunPath,
    failed: Annotated[
        bool, typer.Option(help="only those that something other than the model broke")
    ] = False,
    unsolved: Annotated[bool, typer.Option(help="only those that were graded and not solved")] = False,
    sort: Annotated[
        str | None,
        typer.Option(help="largest first by: gap, reward, passed, num_turns, sampled_tokens, time_total_s"),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="at most so many")] = None,
) -> None:
    """List the trials of a run. The gap is the mean |trainer - rollout| log-prob of a trial's trained tokens."""
    from t1core.campaign.report import trial_lines
    from t1core.store import Run

    for line in trial_lines(
        Run.open(run), only_failed=failed, only_unsolved=unsolved, sort=sort, limit=limit
    ):
        _say(line)


@app.command()
def show(
    run: RunPath, trial: Annotated[str, typer.Argument(help="trial id, as `t1 trials` lists them")]
) -> None:
    """Show one trial: every turn, the tests, why it ended."""
    from t1core.campaign.report import show_lines
    from t1core.store import Run

    for line in show_lines(Run.open(run), trial):
        _say(line)


@app.command()
def audit(
    run: RunPath,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="directory of the policy's tokenizer.json: also count answers that texts would change"
        ),
    ] = None,
) -> None:
    """Check every trained token of a run against what the engine sampled."""
    from t1core.agent.tokenizer import ChatTokenizer
    from t1core.campaign.report import audit_lines
    from t1core.store import Run

    given = None if tokenizer is None else ChatTokenizer.load(tokenizer)
    for line in audit_lines(Run.open(run), tokenizer=given):
        _say(line)


@app.command()
def export(
    run: RunPath,
    trial: Annotated[str, typer.Argument(help="trial id, as `t1 trials` lists them")],
    form: Annotated[
        str,
        typer.Option("--format", help="atif-v1.7, atif-v1.8, slime, verl, or harbor for a trial directory"),
    ] = "atif-v1.8",
    output: Annotated[Path | None, typer.Option(help="the new directory, with --format harbor")] = None,
) -> None:
    """Print one trial in another program's format, as JSON, or write it as a trial directory of Harbor's."""
    from t1core.campaign.interchange import export_harbor_trial, export_trial
    from t1core.store import Run

    if (form == "harbor") != (output is not None):
        raise ValueError(
            "--format harbor writes a directory, and the others print: give --output with it alone"
        )
    if output is not None:
        _say(f"written  {export_harbor_trial(Run.open(run), trial, output)}")
    else:
        _say(export_trial(Run.open(run), trial, form=form))


@app.command()
def page(
    path: Annotated[Path, typer.Argument(help="run directory, or a trial directory of Harbor's")],
    output: Annotated[Path, typer.Option(help="the HTML file to write")],
    trial: Annotated[str | None, typer.Option(help="trial id, with a run directory")] = None,
) -> None:
    """Write the page of one trial, ours or Harbor's: every turn, the tests, why it ended."""
    from t1core.campaign.report import stored_trial
    from t1core.view import trial_page

    output.write_text(trial_page(stored_trial(path, trial)).html)
    _say(f"written  {output}")


@app.command()
def ingest(
    path: Annotated[Path, typer.Argument(help="JSON file: a Harbor result, an ATIF document, samples")],
    form: Annotated[str, typer.Option("--format", help="harbor, atif, slime or verl")],
    output: Annotated[Path | None, typer.Option(help="write the rows as a token file")] = None,
    rollout_id: Annotated[str | None, typer.Option(help="name of the trial, where the file has none")] = None,
    reward: Annotated[float | None, typer.Option(help="reward, where the file has none")] = None,
    weight_version: Annotated[int, typer.Option(help="what sampled it, where the file does not say")] = 0,
) -> None:
    """Turn another program's trial into training rows, and say how faithful it is."""
    from t1core.campaign.interchange import ingest_lines

    for line in ingest_lines(
        path,
        form=form,
        output=output,
        rollout_id=rollout_id,
        reward=reward,
        weight_version=weight_version,
    ):
        _say(line)


@app.command()
def serve(
    model: Annotated[Path, typer.Argument(help="Hugging Face directory with weights and tokenizer")],
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one")] = 8000,
    context_tokens: Annotated[int, typer.Option(help="prompt plus answer of a call")] = 8192,
    max_new_tokens: Annotated[int, typer.Option(help="of an answer, where a request does not say")] = 1024,
    history: Annotated[
        str, typer.Option(help="tokens: sampled ids stay; rendered: all messages rendered each time")
    ] = "tokens",
    rows_dir: Annotated[Path | None, typer.Option(help="where the rows of ended sessions go")] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16 or float32")] = "bfloat16",
    any_sampling: Annotated[
        bool, typer.Option(help="also serve other temperatures; not to be trained")
    ] = False,
) -> None:
    """Serve a model as OpenAI chat completions, and capture every session as training rows."""
    import asyncio

    for name, value, allowed in (
        ("--history", history, ("tokens", "rendered")),
        ("--dtype", dtype, ("bfloat16", "float32")),
    ):
        if value not in allowed:
            raise ValueError(f"{name}={value} is not one of {', '.join(allowed)}")
    from t1core.rollout.chat import SessionSettings
    from t1core.rollout.chat.serve import serve_model

    if rows_dir is not None:
        rows_dir.mkdir(parents=True, exist_ok=True)
    settings = SessionSettings(
        model_name=model.name,
        context_tokens=context_tokens,
        max_new_tokens=max_new_tokens,
        history=history,
        rows_dir=rows_dir,
        any_sampling=any_sampling,
    )
    with _interruptible():
        asyncio.run(serve_model(model, settings=settings, host=host, port=port, dtype=dtype, say=_say))


@app.command()
def verify(
    task: Annotated[Path, typer.Argument(help="task directory in Harbor's layout")],
    attack: Annotated[
        bool, typer.Option("--attack", help="also play the battery of attacks against its tests")
    ] = False,
) -> None:
    """Grade a task's untouched workspace and its own solution; with --attack, say what its tests would fall for."""
    import asyncio

    from t1core.verifier.examine import examine

    async def tell() -> None:
        async for line in examine(task, with_attacks=attack):
            _say(line)

    with _interruptible():
        asyncio.run(tell())


@app.command()
def pretrain_critic(
    runs: Annotated[
        list[Path], typer.Argument(help="run directories whose stored trajectories are learnt from")
    ],
    output: Annotated[Path, typer.Option(help="directory for the critic's weights")],
    preset: Annotated[
        str, typer.Option(help="preset, or TOML file, with the critic's settings")
    ] = "quickstart",
    overrides: Overrides = None,
    actor: Annotated[
        Path | None,
        typer.Option(help="policy whose backbone the critic starts from; else the first run's last actor"),
    ] = None,
    max_age: Annotated[
        int | None,
        typer.Option(min=0, help="leave out what a policy sampled that many versions before its run's last"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the stored steps")] = 3,
    heldout_frac: Annotated[
        float, typer.Option(min=0, max=0.9, help="share of the trials only judged on")
    ] = 0.1,
) -> None:
    """Fit a critic to the Monte-Carlo returns of stored trajectories; no policy learns. Runs under torchrun too."""
    from t1core.campaign.pretraining import pretrain_critic as pretrain
    from t1core.config import load_config

    config = load_config(preset, overrides or ())
    with _interruptible():
        pretrain(
            config,
            runs,
            output=output,
            actor=actor,
            max_age=max_age,
            epochs=epochs,
            heldout_frac=heldout_frac,
            say=_say,
        )


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="nano, 35b, 122b, or a Hugging Face directory")] = "122b",
    gpus: Annotated[int, typer.Option(min=1, help="all GPUs")] = 128,
    train_gpus: Annotated[int | None, typer.Option(min=1, help="those that train; else half of them")] = None,
    wall: Annotated[int, typer.Option(min=1, help="tokens of the longest row")] = 86_016,
    gpu_memory: Annotated[float, typer.Option(help="GiB of one GPU; T1 had 95")] = 95.0,
    tp: Annotated[
        int | None, typer.Option(help="tensor parallel size; without any degree a plan is chosen")
    ] = None,
    pp: Annotated[int | None, typer.Option(help="pipeline parallel size")] = None,
    cp: Annotated[int | None, typer.Option(help="context parallel size")] = None,
    ep: Annotated[int | None, typer.Option(help="expert parallel size")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="train.max_tokens_per_gpu; 1: rows alone count")] = 1,
    use: Annotated[str, typer.Option(help="what must fit: turns, resident, actor or critic")] = "turns",
    precision: Annotated[str, typer.Option(help="bf16 or fp32")] = "bf16",
    recompute: Annotated[bool, typer.Option(help="layers are run again in backward")] = True,
    calibration: Annotated[
        Path | None, typer.Option(help="result of t1 calibrate; else T1's numbers")
    ] = None,
    host_memory: Annotated[float, typer.Option(help="GiB of one host; 0: not judged")] = 0.0,
    gpus_per_host: Annotated[int, typer.Option(min=1)] = 8,
    boxes: Annotated[int, typer.Option(min=0, help="boxes alive at once, over all hosts")] = 560,
    box_memory: Annotated[float, typer.Option(help="GiB a box may take")] = 2.0,
    batch: Annotated[int, typer.Option(help="rows of a step, whose routes lie on a host")] = 512,
    published: Annotated[bool, typer.Option("--published", help="T1's numbers beside computed ones")] = False,
) -> None:
    """Say what a plan takes of each GPU and host, by term, and whether it fits; what breaks it and what would fit."""
    from t1core.campaign.planning import told

    for line in told(
        model=model,
        gpus=gpus,
        train_gpus=train_gpus,
        wall=wall,
        gpu_memory_gib=gpu_memory,
        degrees={"tp": tp, "pp": pp, "cp": cp, "ep": ep},
        max_tokens=max_tokens,
        use=use,
        precision=precision,
        recompute=recompute,
        calibration=calibration,
        host_memory_gib=host_memory,
        gpus_per_host=gpus_per_host,
        boxes=boxes,
        box_memory_gib=box_memory,
        batch=batch,
        published=published,
    ):
        _say(line)


@app.command()
def split(
    gpus: Annotated[int, typer.Option(min=2, help="all GPUs")] = 128,
    rollout: Annotated[
        float | None, typer.Option(help="R: GPU time of a step's rollout, in any unit")
    ] = None,
    train: Annotated[
        float | None, typer.Option(help="C: GPU time of a step's training, in the same unit")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="take R and C from the median step of this run")] = None,
    engine_gpus: Annotated[int, typer.Option(min=1, help="GPUs of one engine: n is a multiple")] = 1,
    sigma: Annotated[float, typer.Option(min=0, help="spread of a trial's log duration; 0: all alike")] = 0.6,
    launched: Annotated[int, typer.Option(min=1, help="trials started a step")] = 560,
    accepted: Annotated[int, typer.Option(min=1, help="trials waited for")] = 512,
    slots: Annotated[int, typer.Option(min=1, help="trials a GPU runs at once")] = 8,
) -> None:
    """Say how many GPUs should sample and how many train, and what the slowest trials do to it."""
    from t1core.campaign.planning import told_split

    for line in told_split(
        gpus=gpus,
        rollout=rollout,
        train=train,
        run=run,
        engine_gpus=engine_gpus,
        sigma=sigma,
        launched=launched,
        accepted=accepted,
        slots=slots,
    ):
        _say(line)


@app.command()
def calibrate(
    model: Annotated[
        str, typer.Option(help="whose width: nano, 35b, 122b, or a Hugging Face directory")
    ] = "35b",
    layers: Annotated[str, typer.Option(help="depths; the first is fitted, the others predicted")] = "4,8",
    tokens: Annotated[
        str, typer.Option(help="lengths; every second is fitted, the others predicted")
    ] = "8192,12288,16384,20480,24576",
    experts: Annotated[int, typer.Option(min=8, help="routed experts a layer, so that it fits one GPU")] = 16,
    vocab: Annotated[int, typer.Option(min=64, help="vocabulary, likewise")] = 65_536,
    output: Annotated[Path | None, typer.Option(help="where the result goes, as JSON")] = None,
) -> None:
    """Measure peaks of small configurations on this GPU (or CPU), fit the capacity model, predict others."""
    from t1core.campaign.calibrate import calibrate as measure

    with _interruptible():
        measure(
            model=model,
            layers=[int(each) for each in layers.split(",")],
            tokens=[int(each) for each in tokens.split(",")],
            num_experts=experts,
            vocab_size=vocab,
            output=output,
            say=_say,
        )


@app.command()
def doctor() -> None:
    """Say what this machine allows, which kinds of boxes work here, and what to install."""
    from t1core.sandbox.doctor import probe
    from t1core.sandbox.kinds import KINDS, LIMITS, probe_kind

    found = probe()
    _say(f"bubblewrap       {found.bubblewrap or 'missing'}\ntmux             {found.tmux or 'missing'}")
    _say(f"user namespaces  {'yes' if found.user_namespaces else 'no'}")
    _say(f"seccomp          {'yes' if found.seccomp else 'no'}")
    _say(f"overlay root     {'yes' if found.overlay is None else f'no: {found.overlay.what}'}")
    if found.overlay is not None:
        _say(f"    fix: {found.overlay.fix}")
    _say(f"boxes            {found.num_boxes} at once, limited by {found.limited_by}")
    for limit, count in found.room.boxes.items():
        _say(f"    {limit + ':':12s} {count}")
    for problem in found.problems:
        _say(f"problem: {problem.what}\n    fix: {problem.fix}")
    for kind in KINDS:
        held = probe_kind(kind)
        number = "as many as the provider gives" if held.num_boxes is None else f"{held.num_boxes} at once"
        _say(f"kind {kind:11s} " + ("does not work here" if held.problems else f"{held.version}, {number}"))
        _say(f"    limits {LIMITS[kind]}")
        for problem in held.problems:
            _say(f"    lacks  {problem.what}\n    fix    {problem.fix}")
    if found.problems:
        raise typer.Exit(1)


commands.register(app)
pool_model_commands.register(pool_app)
app.add_typer(pool_app, name="pool")


def main() -> None:
    """Entry point: what the user or the machine got wrong (a full disk, a closed directory) is one message, what we got
    wrong is a traceback.
    """
    try:
        app()
    except (ValueError, RuntimeError, OSError) as error:
        print(f"t1: {error}", file=sys.stderr)
        if os.environ.get("T1CORE_TRACEBACK"):
            raise
        sys.exit(2)


if __name__ == "__main__":
    main()
