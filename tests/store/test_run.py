"""The run directory as its users meet it: write, read back, resume, follow, end."""

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from t1core.records import StopReason
from t1core.store import NewerSchema, Run, RunBusy, RunState
from tests.store.records_by_hand import batch, engine_failure, trial


@pytest.fixture
def run(tmp_path):
    return Run.create(
        tmp_path, campaign="demo", run_name="seed0", config={"seed": 0}, provenance={}, num_steps=2
    )


def test_what_was_written_reads_back(run):
    run.record_metrics({"reward/mean": 0.25, "critic/explained_variance": math.nan}, step=0)
    run.record_metrics({"eval/heldout/solved_frac": 0.5}, step=0, kind="eval")
    run.record_metrics({"reward/mean": 0.5, "actor/ratio_max": math.inf}, step=1)
    wide = Run.open(run.path).metrics()
    assert wide.loc[0, "reward/mean"] == 0.25
    assert wide.loc[1, "actor/ratio_max"] == math.inf
    assert math.isnan(wide.loc[0, "critic/explained_variance"])
    assert wide.loc[0, "eval/heldout/solved_frac"] == 0.5
    assert "eval/heldout/solved_frac" not in run.metrics("train").columns
    assert run.config() == {"seed": 0}


def test_what_the_parts_found_themselves_to_be_reads_back(run):
    assert run.parts() == {}
    run.record_parts({"trainer 0": {"kernels": "plain (torch sees no CUDA device)", "warm_up_s": {}}})
    assert Run.open(run.path).parts()["trainer 0"]["kernels"].startswith("plain")


def test_a_column_that_is_nan_throughout_stays_a_column(run):
    run.record_metrics({"critic/explained_variance": math.nan, "reward/mean": 0.1}, step=0)
    assert list(run.metrics().columns) == ["critic/explained_variance", "reward/mean"]


def test_trials_read_back_with_outcome_counts_and_nested_parts(run):
    trials = [
        trial("a"),
        trial("b", passed=None, stop=StopReason.CUT),
        trial("c", passed=None, stop=StopReason.FAILED, failure=engine_failure()),
        trial("d", quarantined=True),
    ]
    run.record_trajectories([*trials, trial("e")], step=0, outcomes={"e": "surplus"})
    frame = run.trials().set_index("trial_id")
    assert frame["outcome"].to_dict() == {
        "a": "accepted",
        "b": "cut",
        "c": "failed",
        "d": "quarantined",
        "e": "surplus",
    }
    assert frame.loc["a", "reward"] == pytest.approx(0.1)
    assert math.isnan(frame.loc["b", "reward"])
    assert frame.loc["a", "sampled_tokens"] == 3
    assert frame.loc["a", "context_tokens"] == 7
    assert frame.loc["a", "num_parse_errors"] == 1
    assert frame.loc["a", "time_total_s"] == 1.9
    turns = run.turns("a")
    assert turns["observation"].tolist() == ["a.txt", ""]
    assert turns.loc[1, "commands"] == [{"keystrokes": "ls 1\n", "duration_s": 0.1}]
    assert run.tests("a")["status"].tolist() == ["passed", "passed", "failed", "failed"]
    assert run.calls("a").loc[0, "completion_token_ids"] == [4, 5]
    failures = run.failures()
    assert failures[["trial_id", "boundary", "kind"]].values.tolist() == [["c", "engine", "engine_dead"]]
    with pytest.raises(KeyError, match="no trial 'z'"):
        run.turns("z")


def test_a_trial_without_turns_and_calls_is_kept(run):
    from dataclasses import replace

    bare = replace(
        trial("x", passed=None, stop=StopReason.FAILED, failure=engine_failure()), turns=(), calls=()
    )
    run.record_trajectories([bare], step=0)
    assert run.trials().loc[0, "num_turns"] == 0
    assert run.turns("x").empty
    assert "response" in run.turns("x").columns


def test_terminal_bytes_that_are_no_utf8_do_not_lose_the_step(run):
    dirty = b"ok \xff\xfe \x00 end".decode("utf-8", "surrogateescape")
    run.record_trajectories([trial("a", observation=dirty)], step=0)
    assert run.turns("a").loc[0, "observation"] == "ok \\udcff\\udcfe \x00 end"


def test_an_empty_run_reads_as_empty_frames_with_columns(run):
    assert run.metrics().empty
    assert run.trials().empty
    assert "outcome" in run.trials().columns
    assert run.failures().empty
    assert run.token_steps() == []
    with pytest.raises(KeyError, match="no tokens of step 3"):
        run.tokens(3)


@pytest.mark.parametrize("with_spans", [True, False])
def test_tokens_read_back_with_turns_and_undefined_as_nan(run, with_spans):
    made, spans = batch("a", "b", step=4)
    gap = np.arange(14, dtype=np.float32)
    run.record_tokens(
        made, per_token={"trainer_logprobs": gap, "values": gap}, spans=spans if with_spans else ()
    )
    frame = run.tokens(4)
    assert frame["turn"].tolist() == [-1, -1, -1, 0, 0, -1, 1] * 2
    second = run.tokens(4, trial_id="b")
    calls = second["model_call_id"].dropna().tolist()
    assert calls == (["b-c0", "b-c0", "b-c1"] if with_spans else [])
    assert second["rollout_id"].unique().tolist() == ["b"]
    assert second["token_id"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert second["position"].tolist() == list(range(7))
    assert second["values"].tolist() == list(range(7, 14))
    assert second["trainer_logprobs"].dropna().tolist() == [10, 11, 13]
    assert second["rollout_logprob"].dropna().tolist() == [-0.5, -0.25, -1.0]
    with pytest.raises(KeyError, match="'z' is not in the batch"):
        run.tokens(4, trial_id="z")


@pytest.mark.parametrize("with_routes", [True, False])
def test_the_batch_comes_back_array_by_array_and_any_safetensors_reader_opens_it(run, with_routes):
    made, spans = batch("a", "b", step=4, with_routes=with_routes)
    values = np.linspace(0, 1, 14, dtype=np.float32)
    run.record_tokens(made, per_token={"values": values}, spans=spans)
    back, per_token = run.batch(4)
    assert back.rollout_ids == made.rollout_ids
    for name in (
        "tokens",
        "cu_seqlens",
        "loss_mask",
        "rollout_log_probs",
        "weight_versions",
        "rewards",
        "num_tests",
    ):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))
        assert getattr(back, name).dtype == getattr(made, name).dtype
    if with_routes:
        np.testing.assert_array_equal(back.routes(1), made.routes(1))
    else:
        assert back.routed_experts is None
    np.testing.assert_array_equal(per_token["values"], values)
    foreign = load_file(run.path / "tokens" / "step_0004.safetensors")
    np.testing.assert_array_equal(foreign["tokens"], made.tokens)
    np.testing.assert_array_equal(foreign["values"], values)


def test_an_unknown_metric_is_refused_before_anything_is_written(run):
    with pytest.raises(ValueError, match=r"'reward/men' is not defined; nearest known: reward/mean"):
        run.record_metrics({"reward/mean": 0.1, "reward/men": 0.2}, step=0)
    assert run.metrics().empty


def test_a_resumed_run_replaces_the_steps_it_repeats_and_drops_a_torn_line(run):
    run.record_metrics({"reward/mean": 0.1}, step=0)
    run.record_trajectories([trial("a")], step=0)
    with pytest.raises(AssertionError):
        run.record_trajectories([trial("a")], step=0)
    run.close(RunState.FAILED, error="trainer died")
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "step": 1, "kin')
    again = Run.resume(run.path)
    assert again.status().attempt == 2
    assert again.logs.name == "attempt_2"
    assert again.logs.is_dir()
    again.record_metrics({"reward/mean": 0.3}, step=0)
    again.record_trajectories([trial("b")], step=0)
    assert again.metrics()["reward/mean"].tolist() == [0.3]
    assert again.trials()["trial_id"].tolist() == ["b"]
    again.close()
    assert again.status().state is RunState.FINISHED
    assert again.status().error is None


def test_two_writers_are_refused_and_a_reader_is_not(run):
    with pytest.raises(RunBusy, match="another process"):
        Run.resume(run.path)
    assert Run.open(run.path).status().state is RunState.STARTING


def test_existing_and_foreign_directories_and_bad_names_are_refused_with_the_way_out(run, tmp_path):
    with pytest.raises(ValueError, match="choose another run name"):
        Run.create(tmp_path, campaign="demo", run_name="seed0", config={}, provenance={})
    with pytest.raises(ValueError, match="no run directory"):
        Run.open(tmp_path)
    with pytest.raises(ValueError, match=r"run_name '\.\./x'"):
        Run.create(tmp_path, campaign="demo", run_name="../x", config={}, provenance={})


def test_the_block_that_ends_says_how(tmp_path):
    def end_of(error, name):
        try:
            with Run.create(tmp_path, campaign="demo", run_name=name, config={}, provenance={}) as run:
                run.update_status(state=RunState.RUNNING, step=0)
                if error:
                    raise error
        except BaseException as raised:
            assert raised is error
        return Run.open(tmp_path / "demo" / name).status()

    assert end_of(None, "a").state is RunState.FINISHED
    assert end_of(KeyboardInterrupt(), "b").state is RunState.INTERRUPTED
    failed = end_of(RuntimeError("engine 0 did not answer"), "c")
    assert (failed.state, failed.error) == (RunState.FAILED, "RuntimeError: engine 0 did not answer")


def test_closing_exports_long_parquet_that_stands_in_for_the_journal(run):
    run.record_metrics({"reward/mean": 0.1, "reward/std": math.nan}, step=0)
    run.record_failure(engine_failure(), step=0)
    run.close()
    exported = pd.read_parquet(run.path / "metrics.parquet")
    assert exported[["step", "kind", "name"]].values.tolist() == [
        [0, "train", "reward/mean"],
        [0, "train", "reward/std"],
    ]
    assert pd.read_parquet(run.path / "failures.parquet")["kind"].tolist() == ["engine_dead"]
    (run.path / "metrics.jsonl").unlink()
    assert run.metrics()["reward/mean"].tolist() == [0.1]


@pytest.mark.parametrize("name", ["config.json", "status.json", "vocabulary.json"])
def test_a_newer_document_is_refused(run, name):
    run.record_vocabulary(["a", "b"])
    path = run.path / name
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"schema_version": 2}))
    with pytest.raises(NewerSchema, match="newer than 1"):
        opened = Run.open(run.path)
        opened.status()
        opened.vocabulary()


def test_newer_journals_tables_and_tensors_are_refused(run, monkeypatch):
    made, _ = batch("a")
    for module in ("journal", "trial_table", "tensors"):
        monkeypatch.setattr(f"t1core.store.{module}.SCHEMA_VERSION", 2)
    run.record_metrics({"reward/mean": 0.1}, step=0)
    run.record_trajectories([trial("a")], step=0)
    run.record_tokens(made, per_token={})
    for read in (run.metrics, run.trials, lambda: run.turns("a"), lambda: run.tokens(0)):
        with pytest.raises(NewerSchema, match="update t1core"):
            read()


def _write_forever(root):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite started in the background ignores it
    with Run.create(root, campaign="demo", run_name="live", config={}, provenance={}, num_steps=10**6) as run:
        run.update_status(state=RunState.RUNNING)
        for step in range(10**6):
            run.record_metrics({"reward/mean": step / 10}, step=step)
            run.record_trajectories([trial(f"t{step}", step=step)], step=step)
            run.update_status(step=step)


def _start_writer(tmp_path):
    writer = multiprocessing.get_context("fork").Process(target=_write_forever, args=(tmp_path,))
    writer.start()
    path = tmp_path / "demo" / "live"
    while not (path / "metrics.jsonl").exists():
        time.sleep(0.01)
    return writer, path


def test_following_a_living_run_sees_every_step_once_and_ends_when_it_is_interrupted(tmp_path):
    writer, path = _start_writer(tmp_path)
    steps, last = [], None
    for update in Run.open(path).follow(poll_s=0.01):
        last = update.status
        steps += [row.step for row in update.rows]
        Run.open(path).trials()
        if len(steps) > 20 and writer.is_alive():
            os.kill(writer.pid, signal.SIGINT)
            writer.join(10)
    assert last.state is RunState.INTERRUPTED
    assert steps == list(range(len(steps)))
    assert len(steps) > 20


def test_a_killed_writer_is_noticed_loses_nothing_and_can_be_resumed(tmp_path):
    writer, path = _start_writer(tmp_path)
    time.sleep(0.2)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(10)
    run = Run.open(path)
    updates = list(run.follow(poll_s=0.01))
    assert updates[-1].status.died
    assert run.metrics().index.tolist() == list(range(len(run.metrics())))
    assert len(run.trials()) >= len(run.metrics()) - 1
    with Run.resume(path) as again:
        again.record_metrics({"reward/mean": 1.0}, step=10**6)
    assert run.status().state is RunState.FINISHED


def test_reading_a_run_imports_neither_torch_nor_ray():
    code = (
        "import sys, t1core.store, t1core.metrics, t1core.analysis, t1core.view; "
        "print([name for name in ('torch', 'ray', 'transformers', 'megatron') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_run_whose_export_fails_has_failed_and_says_so(run):
    run.record_metrics({"reward/mean": 0.1}, step=0)
    (run.path / "metrics.parquet").mkdir()
    with pytest.raises(IsADirectoryError):
        run.close()
    status = Run.open(run.path).status()
    assert status.state is RunState.FAILED
    assert "IsADirectoryError" in status.error
    assert Run.open(run.path).metrics()["reward/mean"].tolist() == [0.1]
    Run.resume(run.path)  # the lock was let go


def test_how_a_broken_run_ended_is_written_before_anything_that_may_not_fit(run):
    (run.path / "failures.jsonl").mkdir()
    with pytest.raises(IsADirectoryError):
        run.close(RunState.FAILED, error="engine 0 is gone", failure=engine_failure())
    status = Run.open(run.path).status()
    assert (status.state, status.error.split(";")[0]) == (RunState.FAILED, "engine 0 is gone")


def test_what_broke_the_run_is_in_its_failures(run):
    run.close(RunState.FAILED, error="engine 0 is gone", failure=engine_failure())
    assert pd.read_parquet(run.path / "failures.parquet")["kind"].tolist() == ["engine_dead"]


def test_the_calls_of_a_trial_are_found_in_its_steps_file_alone(run):
    run.record_trajectories([trial("a", step=3)], step=3)
    assert run.calls("a", step=3)["completion_token_ids"].tolist() == [[4, 5], [7]]
    run.record_trajectories([trial("b", step=4)], step=4)
    with pytest.raises(KeyError):
        run.calls("a", step=4)
