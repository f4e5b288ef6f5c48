"""Commands that read a run, explain settings and metrics, or begin a project; the `t1` command takes them in.

They import what they need when they are called, so that `t1` itself stays quick.
"""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

RunPath = Annotated[Path, typer.Argument(help="run directory")]
Preset = Annotated[str, typer.Argument(help="name of a preset, or path of a TOML file")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="dotted override: train.actor.lr=5e-5")]


def say(line: str) -> None:
    print(line, flush=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block alike, and the command with 130."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (tail, compare, replay, rollout, train, metrics, init, config, keep, figures, ledger):
        app.command()(command)


def tail(
    run: RunPath,
    once: Annotated[bool, typer.Option("--once", help="say how it stands and leave")] = False,
) -> None:
    """Watch a run: its steps, rates, trials in flight and time left. Ctrl-C leaves; the run goes on."""
    from t1core.campaign.tail import watch
    from t1core.store import Run

    reader = Run.open(run)
    try:
        watch(reader, once=once, say=say)
    except KeyboardInterrupt:
        say(f"left; the run goes on: {reader.path}")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="run directories, or one folder of runs")],
) -> None:
    """Compare runs: reward, explained variance, gap, held-out tasks, each with its 95% interval, and what differs."""
    from t1core.campaign.comparison import comparison_lines

    for line in comparison_lines(runs):
        say(line)


def replay(
    run: RunPath,
    trial: Annotated[str, typer.Argument(help="trial id, as `t1 trials` lists them")],
    from_turn: Annotated[
        int | None,
        typer.Option(min=0, help="stop before this turn and hand the terminal to you, or the policy"),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Hugging Face directory of a policy that goes on from there")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the policy's draws")] = 0,
    task: Annotated[
        Path | None, typer.Option(help="the task's directory, else the run's pool is searched")
    ] = None,
) -> None:
    """Build a trial's box again, type what the policy typed and compare the screens; with --policy, let one go on."""
    from t1core.campaign.continuing import continue_trial
    from t1core.campaign.replay import replay as replay_trial
    from t1core.campaign.report import stored_trial
    from t1core.store import Run

    try:
        reader, stored = Run.open(run), stored_trial(run, trial)
        if policy is not None:
            start = from_turn or 0
            continue_trial(reader, stored, policy=policy, from_turn=start, task=task, seed=seed, say=say)
        else:
            replay_trial(reader, stored, task=task, from_turn=from_turn, say=say)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def rollout(
    model: Annotated[Path, typer.Argument(help="Hugging Face directory with weights and tokenizer")],
    pool: Annotated[Path, typer.Option(help="directory of Harbor tasks")],
    preset: Annotated[str, typer.Option(help="preset, or TOML file")] = "quickstart",
    overrides: Overrides = None,
) -> None:
    """Rollout without training: collect num_steps batches with one policy, and store their trials and tokens."""
    from t1core.campaign.one_sided import roll_out
    from t1core.config import load_config

    settings = load_config(preset, overrides or ())
    with interruptible():
        roll_out(settings, model.resolve(), pool=pool, say=say)


def train(
    run: RunPath,
    actor: Annotated[Path, typer.Option(help="Hugging Face directory of the policy to begin with")],
    critic: Annotated[Path | None, typer.Option(help="the critic to begin with; else a cold one")] = None,
    overrides: Overrides = None,
) -> None:
    """Training without rollout: on a run's stored batches in their order, with its settings and what --set changes."""
    from t1core.campaign.one_sided import train_stored
    from t1core.config.load import changed
    from t1core.store import Run

    stored = Run.open(run)
    settings = changed(stored.config(), overrides or (), origin=str(run / "config.json"))
    with interruptible():
        made = train_stored(settings, stored, actor=actor, critic=critic, say=say)
    say(f"written  {made.path / 'checkpoints' / 'final'}")


def metrics(
    name: Annotated[str | None, typer.Argument(help="a metric: critic/explained_variance")] = None,
    page: Annotated[bool, typer.Option("--page", help="the whole reference as Markdown")] = False,
) -> None:
    """Say what a metric is, or list all of them."""
    from t1core.metrics import CATALOGUE
    from t1core.metrics.reference import describe, reference_page

    if page:
        print(reference_page(), end="")
    elif name is not None:
        say("\n".join(describe(name)))
    else:
        for metric in CATALOGUE:
            say(f"{metric.name:44} {metric.meaning}")


def init(
    directory: Annotated[Path, typer.Argument(help="folder to make; its name becomes the campaign's")],
    preset: Annotated[str, typer.Option(help="preset whose settings it begins with")] = "quickstart",
) -> None:
    """Begin a project of your own: settings, a campaign file and notebooks that run at once."""
    from t1core.campaign.project import init_project

    for path in init_project(directory, preset=preset):
        say(f"written  {path}")
    say(f"next     cd {directory} && t1 notebook campaign.yaml --dry-run")


def config(
    preset: Preset = "quickstart",
    overrides: Overrides = None,
    explain: Annotated[
        str | None, typer.Option(help="say what a setting, or each of a section, means: train.actor.lr")
    ] = None,
    diff: Annotated[
        str | None, typer.Option(help="print only what is not as in this preset, or in `defaults`")
    ] = None,
) -> None:
    """Print the resolved configuration, or what one setting means, or how it differs from a preset."""
    from t1core.config import CampaignConfig, load_config
    from t1core.config.explain import difference_lines
    from t1core.config.explain import explain as explain_lines
    from t1core.config.load import to_json

    resolved = load_config(preset, overrides or ())
    if explain is not None and diff is not None:
        raise ValueError("--explain and --diff answer different questions: give one of them")
    if explain is not None:
        say("\n".join(explain_lines(explain, resolved)))
    elif diff is not None:
        other = CampaignConfig() if diff == "defaults" else load_config(diff)
        say("\n".join(difference_lines(resolved, other, name=diff)) or f"as in {diff}")
    else:
        say(to_json(resolved))


def keep(
    run: RunPath,
    name: Annotated[str, typer.Argument(help="name of the new directory in figures/results")],
    trial: Annotated[
        list[str] | None, typer.Option(help="trial that keeps its turns; else one solved and one unsolved")
    ] = None,
) -> None:
    """Make a small copy of a run that has ended, for git: metrics, trials and tests, without tokens."""
    from t1core.analysis import pick_trials
    from t1core.store import Run
    from t1core.store.kept_run import keep_run

    source, target = Run.open(run), Path("figures") / "results" / name
    whole = list(pick_trials(source.trials()).values()) if trial is None else trial
    size = keep_run(source, target, whole=whole)
    say(f"kept  {target}, {size:,} bytes, turns of {', '.join(whole) or 'no trial'}")


def figures(
    check: Annotated[
        bool, typer.Option("--check", help="write nothing; 1 where a figure or the ledger would change")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="name of a notebook, as `scores`: draw its figures alone")
    ] = None,
) -> None:
    """Draw every kept figure anew from the kept results, and the ledger; or say what has changed."""
    from t1core.campaign import kept_figures

    if not check:
        kept_figures.build(say=say, only=only or ())
    elif any(change != "same" for change in kept_figures.check(say=say, only=only or ()).values()):
        raise typer.Exit(1)


def ledger() -> None:
    """Print what the sources claim beside what is measured, computed or only quoted here, as docs/LEDGER.md has it."""
    from t1core.ledger.page import ledger_page

    print(ledger_page(), end="")
