"""Commands with a model behind them, or that could have one: `t1 pool llm-audit`, `synthesise`, `density`.

They import what they need when they are called, so that `t1` itself stays quick.
"""

from pathlib import Path
from typing import Annotated

import typer

from t1core.campaign.commands import interruptible, say
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
    pool_app.command()(synthesise)
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

    with interruptible():
        asyncio.run(audit())
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


def synthesise(
    pool: PoolPath,
    rounds: Annotated[int, typer.Option(min=1, help="rounds; each begins with what the last one kept")],
    output: Annotated[Path, typer.Option(help="directory of the new pool and its lineage; gone on with")],
    per_round: Annotated[int, typer.Option(min=1, help="candidates a round")] = 24,
    split: Annotated[str, typer.Option(help="split that the first round begins with")] = "train",
    seeds: Annotated[int | None, typer.Option(min=1, help="so many of its tasks, spread evenly")] = None,
    seed: Annotated[int, typer.Option(help="draws parents, operators and the policy's errors")] = 0,
    max_tests: Annotated[int, typer.Option(min=1, help="tests that a composed task may have")] = 60,
    max_instruction: Annotated[int, typer.Option(min=1, help="characters of its instruction")] = 4000,
    mutants: Annotated[int, typer.Option(min=0, help="broken solutions that the gate tries, at most")] = 6,
    repeats: Annotated[int, typer.Option(min=0, help="further grades of the solution in the gate")] = 1,
    attacks: Annotated[bool, typer.Option(help="play the battery of attacks in the gate")] = False,
    attempts: Annotated[int, typer.Option(min=0, help="of the fixed policy at a task; 0: none")] = 4,
    policy_tasks: Annotated[int, typer.Option(min=1, help="tasks a round that it attempts")] = 8,
    error_rate: Annotated[float, typer.Option(help="chance that it leaves out a command")] = 0.02,
    endpoint: Annotated[str | None, typer.Option(help="have a model write variants; else compose")] = None,
    model: Annotated[str | None, typer.Option(help="the model's name there")] = None,
    max_chars: Annotated[int, typer.Option(min=1, help="characters shown of a task")] = 60_000,
    api_key_env: ApiKeyEnv = "",
    timeout_s: TimeoutS = 300.0,
    tries: Tries = 4,
    max_tokens: MaxTokens = 8192,
    temperature: Temperature = None,
    schema: Schema = True,
    max_retries: MaxRetries = 2,
) -> None:
    """Make harder tasks of a pool's, round by round, gated by the executable audit; say how a fixed policy fares."""
    import asyncio

    from t1core.campaign.pool_synthesis import PolicyPlan, run_synthesis
    from t1core.pools.audit_task import AuditSettings
    from t1core.pools.llm.endpoint import EndpointSettings
    from t1core.pools.synthesis.composer import Bounds
    from t1core.pools.synthesis.rounds import RoundPlan
    from t1core.tasks.pool import Pool

    if (endpoint is None) != (model is None):
        raise ValueError(
            "--endpoint and --model belong together: give both, or neither to compose without a model"
        )
    asked = None
    if endpoint is not None and model is not None:
        asked = EndpointSettings(
            url=endpoint,
            model=model,
            api_key_env=api_key_env,
            timeout_s=timeout_s,
            max_tries=tries,
            max_tokens=max_tokens,
            temperature=temperature,
            with_schema=schema,
        )
    with interruptible():
        asyncio.run(
            run_synthesis(
                Pool.open(pool),
                split=split,
                num_seeds=seeds,
                plan=RoundPlan(num_rounds=rounds, per_round=per_round),
                bounds=Bounds(max_tests=max_tests, max_instruction_chars=max_instruction),
                audit=AuditSettings(
                    num_repeats=repeats, num_mutants=mutants, with_attacks=attacks, seed=seed
                ),
                policy=PolicyPlan(num_attempts=attempts, num_tasks=policy_tasks, error_rate=error_rate),
                endpoint=asked,
                max_retries=max_retries,
                max_chars=max_chars,
                seed=seed,
                output=output,
                say=say,
            )
        )


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
