"""Commands that judge pools by a model, and measure what rewards say: `t1 pool llm-audit`, `t1 pool density`.

They import what they need when they are called, so that `t1` itself stays quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from t1core.campaign.commands import say
from t1core.campaign.pool_commands import PoolPath

Endpoint = Annotated[str, typer.Option(help="base address, as in http://127.0.0.1:8000/v1")]
Model = Annotated[str, typer.Option(help="the model's name there")]
ApiKeyEnv = Annotated[str, typer.Option(help="environment variable with the key, which is stored nowhere")]
TimeoutS = Annotated[float, typer.Option("--timeout", help="seconds a call may take")]
Tries = Annotated[int, typer.Option(min=1, help="calls for one answer, where the endpoint fails")]
MaxTokens = Annotated[int, typer.Option(min=1, help="tokens of an answer")]
Temperature = Annotated[float | None, typer.Option(help="left to the endpoint where not given")]
Schema = Annotated[bool, typer.Option(help="ask the endpoint to keep to the JSON schema")]
MaxRetries = Annotated[int, typer.Option(min=0, help="how often a wrong answer is asked for again")]
Parallel = Annotated[int, typer.Option(min=1, help="tasks asked about at once")]


def register(pool_app: typer.Typer) -> None:
    """Add the commands to `t1 pool`."""
    pool_app.command("llm-audit")(llm_audit)
    pool_app.command()(density)


def llm_audit(
    pool: PoolPath,
    endpoint: Endpoint,
    model: Model,
    output: Annotated[Path, typer.Option(help="file of verdicts, one line a task; gone on with where it is")],
    split: Annotated[str | None, typer.Option(help="only the tasks of this split")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="so many tasks, spread evenly")] = None,
    repaired: Annotated[
        Path | None, typer.Option(help="new directory for tasks that a repair made acceptable")
    ] = None,
    executed: Annotated[
        Path | None, typer.Option(help="verdicts of t1 pool audit: say how far both agree")
    ] = None,
    max_repairs: Annotated[int, typer.Option(min=0, help="instructions a task may be given")] = 1,
    accept_at: Annotated[float, typer.Option(help="quality of an accepted task, 0 to 1")] = 0.75,
    borderline_at: Annotated[float, typer.Option(help="quality below which a task is rejected")] = 0.5,
    minimum: Annotated[int, typer.Option(help="score that every critical dimension needs, 1 to 5")] = 3,
    max_chars: Annotated[int, typer.Option(min=1, help="characters shown of a task")] = 60_000,
    api_key_env: ApiKeyEnv = "",
    timeout_s: TimeoutS = 120.0,
    tries: Tries = 4,
    max_tokens: MaxTokens = 2048,
    temperature: Temperature = None,
    schema: Schema = True,
    max_retries: MaxRetries = 2,
    parallel: Parallel = 4,
) -> None:
    """Have a model judge every task in eight dimensions, repair instructions, and judge again; 1 where one failed."""
    import asyncio

    from t1core.pools.llm.agreement import agreement_table
    from t1core.pools.llm.audit import AuditPlan, TaskPlace, audit_tasks, read_audit
    from t1core.pools.llm.endpoint import EndpointSettings, open_endpoint
    from t1core.pools.llm.repaired import write_repaired
    from t1core.pools.llm.report import agreement_lines, audit_lines, verdict_line
    from t1core.pools.llm.rubric import Rubric
    from t1core.pools.verdict import read_verdicts
    from t1core.tasks.order import spread
    from t1core.tasks.pool import Pool

    settings = EndpointSettings(
        url=endpoint,
        model=model,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        max_tries=tries,
        max_tokens=max_tokens,
        temperature=temperature,
        with_schema=schema,
    )
    rubric = Rubric(accept_at=accept_at, borderline_at=borderline_at, minimum=minimum)
    plan = AuditPlan(
        rubric=rubric,
        max_retries=max_retries,
        max_repairs=max_repairs,
        max_chars=max_chars,
        num_parallel=parallel,
    )
    if repaired is not None and repaired.exists():
        raise ValueError(f"--repaired {repaired} exists; choose another directory or remove it")
    opened = Pool.open(pool)
    entries = spread(opened.entries if split is None else opened.split(split), sample)
    directories = {entry.task_id: opened.directory / entry.path for entry in entries}

    async def audit() -> None:
        async with open_endpoint(settings) as asked:
            places = (TaskPlace(e.task_id, directories[e.task_id], e.content_hash) for e in entries)
            await audit_tasks(
                asked, places, plan=plan, output=output, say=lambda verdict: say(verdict_line(verdict))
            )

    try:
        asyncio.run(audit())
    except KeyboardInterrupt:
        say(f"left; the same command goes on with {output}")
        raise typer.Exit(130) from None
    head, verdicts = read_audit(output)
    for line in audit_lines(head, verdicts):
        say(line)
    if repaired is not None:
        written = write_repaired(verdicts, directories=directories, output=repaired)
        say(f"repaired   {len(written)} tasks written to {repaired}")
    if executed is not None:
        others = {verdict.task_id: verdict for verdict in read_verdicts(executed)}
        for line in agreement_lines(agreement_table(verdicts, executed=others, minimum=minimum)):
            say(line)
    if any(verdict.judgement is None for verdict in verdicts):
        raise typer.Exit(1)


def density(
    trials: Annotated[Path, typer.Argument(help="JSON file of graded trials: model, task, T, P, b")],
    output: Annotated[Path | None, typer.Option(help="where the aggregates go, as JSON")] = None,
) -> None:
    """Say what a trial's reward tells, all tests passed against the number that pass: bits, flat groups, progress."""
    from t1core.analysis.reward_density import density_lines, measure_reward_density, read_counted_trials

    measured = measure_reward_density(read_counted_trials(trials))
    for line in density_lines(measured):
        say(line)
    if output is not None:
        output.write_text(measured.to_json())
        say(f"written    {output}")
