"""`t1 plan`, `t1 split`, and a campaign that is held to the GPUs it names."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from typer.testing import CliRunner

from t1core.campaign.planning import check_capacity, measured_work, told, told_split
from t1core.cli import app
from t1core.config import load_config

ASKED = dict(
    model="122b",
    gpus=128,
    train_gpus=None,
    wall=86_016,
    gpu_memory_gib=95.0,
    degrees={"tp": None, "pp": None, "cp": None, "ep": None},
    max_tokens=1,
    use="turns",
    precision="bf16",
    recompute=True,
    calibration=None,
    host_memory_gib=0.0,
    gpus_per_host=8,
    boxes=560,
    box_memory_gib=2.0,
    batch=512,
    published=False,
)
T1 = {"tp": 2, "pp": 4, "cp": 2, "ep": 16}
DEGREES = [
    "train.tensor_parallel=2",
    "train.pipeline_parallel=4",
    "train.context_parallel=2",
    "train.expert_parallel=16",
    "train.data_parallel=4",
]


def test_without_degrees_a_plan_that_fits_is_chosen_and_shown_by_term_and_stage() -> None:
    lines = told(**ASKED)
    assert lines[0] == "128 GPUs, 64 of them train and 64 sample"
    rows = [line.split() for line in lines if line.startswith(("actor ", "critic "))]
    assert {row[0] for row in rows} == {"actor", "critic"}
    for row in rows:
        *terms, peak = map(float, row[2:])
        *terms, step, b0 = terms
        assert sum(terms) + b0 == pytest.approx(peak, abs=0.06) and step > 0
    assert any("pair taking turns" in line and line.endswith("fits") for line in lines)


def test_a_plan_that_does_not_fit_says_what_breaks_it_and_what_would_fit() -> None:
    lines = told(
        **ASKED | {"degrees": T1, "gpu_memory_gib": 60.0, "max_tokens": 4096, "host_memory_gib": 100.0}
    )
    text = "\n".join(lines)
    assert "actor alone           83.48  (actor, stage 4)  DOES NOT FIT: logits breaks it" in text
    assert "nearest plans that fit (pair taking turns, 64 GPUs):\n  TP=2 PP=4 CP=8 EP=16 DP=1" in text
    assert "max_tokens_per_gpu=4,096 does not lower this peak" in text
    assert "43,008 tokens on each of CP=2 ranks" in text
    assert "of 100 GiB: DOES NOT FIT: offloaded actor is the largest term" in text


def test_coefficients_of_another_width_are_said_to_be_so() -> None:
    warning = "run t1 calibrate at this one"
    assert not any(warning in line for line in told(**ASKED))
    lines = told(**ASKED | {"model": "35b"})
    assert any(warning in line for line in lines) and "actor 34.66 B parameters" in lines[1]


def test_where_no_plan_of_these_gpus_fits_more_of_them_are_looked_at() -> None:
    text = "\n".join(told(**ASKED | {"train_gpus": 16}))
    assert "DOES NOT FIT: expert optimiser breaks it" in text
    assert "nearest plans that fit (pair taking turns, 32 GPUs)" in text or "64 GPUs)" in text


def test_options_that_cannot_be_are_refused_by_name() -> None:
    for change, message in (
        ({"use": "both"}, "--use both is not one of actor, critic, turns, resident"),
        ({"precision": "fp8"}, "--precision fp8"),
        ({"train_gpus": 200}, "--train-gpus 200 are more than --gpus 128"),
        ({"degrees": T1 | {"pp": 3}}, "make 12 ranks, which do not divide 64 training GPUs"),
        ({"model": "nowhere"}, "--model nowhere: not one of nano, 35b, 122b"),
        ({"calibration": Path("nowhere.json")}, "holds no result of t1 calibrate"),
    ):
        with pytest.raises(ValueError, match=message):
            told(**ASKED | change)


def test_the_commands_take_their_options() -> None:
    words = "plan --tp 2 --pp 4 --cp 2 --ep 8 --gpu-memory 60 --use actor --no-recompute --train-gpus 32"
    said = CliRunner().invoke(app, words.split())
    assert said.exit_code == 0 and "TP=2 PP=4 CP=2 EP=8 DP=2" in said.output and "layers kept" in said.output
    words = "split --gpus 64 --rollout 100 --train 300 --engine-gpus 8"
    said = CliRunner().invoke(app, words.split())
    assert said.exit_code == 0 and "n=16 sample, 48 train" in said.output


def test_t1s_numbers_are_told_with_what_they_can_be_derived_from() -> None:
    lines = told(**ASKED | {"published": True})
    assert any(line.startswith("logits at CP 2") and "29.84" in line.split()[5] for line in lines)
    assert any(line.startswith("peak at CP 4 ") and "not derived" in line for line in lines)


def test_a_split_is_told_from_numbers_or_from_a_run() -> None:
    asked = dict(
        gpus=128,
        rollout=1024.0,
        train=2624.0,
        run=None,
        engine_gpus=1,
        sigma=0.6,
        launched=560,
        accepted=512,
        slots=8,
    )
    lines = told_split(**asked)
    # 128 x 1024 / 3648 = 35.9
    assert "n=36 sample, 92 train" in lines[1]
    assert lines[2].startswith("with the straggler's tail") and lines[3].startswith("trial by trial")
    with pytest.raises(ValueError, match="give --rollout R and --train C"):
        told_split(**asked | {"rollout": None})


def test_a_campaign_that_names_too_small_gpus_does_not_start() -> None:
    small = load_config("quickstart", ["capacity.gpu_memory_gib=0.02"])
    with pytest.raises(
        ValueError, match=r"the plan does not fit: TP=1 PP=1 CP=1 EP=1 DP=1 takes .* on a GPU of 0.02 GiB"
    ):
        check_capacity(small)
    check_capacity(load_config("quickstart", ["capacity.gpu_memory_gib=95"]))
    check_capacity(load_config("t1-122b"))
    with pytest.raises(ValueError, match="and logits breaks it; nearest plans that fit"):
        check_capacity(
            load_config(
                "t1-122b", ["train.context_parallel=2", "train.data_parallel=4", "capacity.gpu_memory_gib=70"]
            )
        )
    check_capacity(load_config("quickstart"))
    with pytest.raises(ValueError, match="ep=4 does not divide"):
        check_capacity(load_config("quickstart", ["capacity.gpu_memory_gib=95", "train.expert_parallel=4"]))


def test_a_calibration_without_gpus_to_hold_it_to_is_refused() -> None:
    with pytest.raises(ValueError, match="has no effect with gpu_memory_gib=0"):
        load_config("quickstart", ["capacity.calibration=found.json"])


def test_work_of_a_run_is_its_median_step_over_the_processes_that_took_it() -> None:
    config = load_config("smoke", ["train.data_parallel=3"]).model_dump(mode="json")
    times = pd.DataFrame({"time/rollout_s": [9.0, 5.0, 4.0], "time/train_s": [7.0, 2.0, 3.0]})
    run = SimpleNamespace(path="here", config=lambda: config, metrics=lambda kind: times)
    assert measured_work(run) == (5.0, 9.0)
    run.metrics = lambda kind: times[["time/rollout_s"]]
    with pytest.raises(ValueError, match="run here has no time/train_s"):
        measured_work(run)
