"""Claims as experiments: their definitions, the plan of their runs, running, and what is kept of them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from t1core.analysis import Verdict
from t1core.campaign import claim_runs
from t1core.campaign.asset import Assets
from t1core.campaign.claim import changed_keys, read_claim, read_claims
from t1core.campaign.claim_command import judged_contrasts, verdict_lines
from t1core.campaign.claim_results import keep_results, merged, read_results, results_of
from t1core.campaign.claim_runs import plan_runs, run_all

CLAIMS = sorted((Path(__file__).parents[2] / "papermill" / "claims").glob("*.yaml"))
SMALL = {
    "says": "One is more than two.",
    "quoted": ["nothing"],
    "refuted_by": "Less.",
    "preset": "smoke",
    "measure": "heldout_tests",
    "arms": {"one": [], "two": ["reward.kind=binary"]},
    "contrasts": [{"arm": "two", "against": "one", "expect": "lower"}],
    "seeds": [0, 1],
}


def write(path, **changes):
    path.write_text(yaml.safe_dump(SMALL | changes, sort_keys=False))
    return path


@pytest.fixture
def assets(tmp_path):
    for role in ("actor", "critic"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text(role)
        (tmp_path / role / "model.safetensors").write_bytes(role.encode())
    return Assets(tmp_path / "pool", tmp_path / "actor", tmp_path / "critic")


@pytest.fixture
def plan(assets, tmp_path):
    def made(*claims, form="full", **options):
        return plan_runs(claims, form=form, root=tmp_path / "runs", assets=lambda config: assets, **options)

    return made


def test_the_nine_claims_are_there():
    assert [path.stem for path in CLAIMS] == [
        *("critic", "fidelity", "length", "order", "ppo_grpo", "reward", "staleness", "story", "tail")
    ]


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_every_arm_resolves_and_differs_from_the_baseline_in_what_it_says_alone(path):
    claim = read_claim(path)
    assert len(claim.seeds) >= 3 and claim.says.endswith(".") and claim.refuted_by.endswith(".")
    for form in ("full", "short"):
        for arm in claim.arms_of(form):
            claim.config(arm, form=form)
    for arm, about in list(claim.arms.items())[1:]:
        said = {setting.partition("=")[0] for setting in about.settings}
        assert set(changed_keys(claim, arm)) == said, arm
    contrasted = {arm for one in claim.contrasts for arm in (one.arm, one.against)}
    assert contrasted <= set(claim.arms)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"measure": "speed"}, "measure 'speed' is not one of heldout_tests"),
        (
            {"arms": {"one": [], "two": ["reward.kind=dense"]}},
            "reward.kind=dense is as in the baseline 'one'",
        ),
        ({"arms": {"one": [], "two": []}}, "arm 'two' is the baseline 'one' once more"),
        ({"arms": {"one": [], "two": ["reward.knid=binary"]}}, "did you mean reward.kind"),
        (
            {"contrasts": [{"arm": "three", "against": "one", "expect": "lower"}]},
            "arm 'three' is not one of one, two",
        ),
        ({"contrasts": [{"arm": "two", "against": "one", "expect": "better"}]}, "contrasts.0.expect"),
        (
            {"arms": {"one": [], "two": {"critic_from": "three"}}},
            "starts from 'three', which is no arm before it",
        ),
        ({"arms": {"one": {"critic_from": "two"}, "two": ["reward.kind=binary"]}}, "no arm before it"),
        ({"quoted": []}, "quoted"),
        ({"verdict": "held"}, "verdict: Extra inputs"),
    ],
)
def test_a_definition_that_cannot_be_meant_is_refused(tmp_path, changes, told):
    with pytest.raises(ValueError, match=r"claim .*small\.yaml is refused") as refused:
        read_claim(write(tmp_path / "small.yaml", **changes))
    assert told in str(refused.value)


def test_two_claims_of_one_name_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    paths = [write(tmp_path / "x.yaml"), write(tmp_path / "a" / "x.yaml")]
    with pytest.raises(ValueError, match="claims of one name: x"):
        read_claims(paths)


def test_one_configuration_is_run_once_whatever_claims_ask_for_it(tmp_path, plan):
    first = read_claim(write(tmp_path / "first.yaml"))
    second = read_claim(write(tmp_path / "second.yaml", arms={"plain": [], "ratio": ["reward.kind=ratio"]},
                              contrasts=[{"arm": "ratio", "against": "plain", "expect": "lower"}]))  # fmt: skip
    runs = plan(first, second)
    assert [(run.arm, run.seed) for run in runs] == [
        ("one", 0), ("two", 0), ("ratio", 0), ("one", 1), ("two", 1), ("ratio", 1),
    ]  # fmt: skip
    assert runs[0].claims == (("first", "one"), ("second", "plain"))
    assert len({run.path for run in runs}) == 6


def test_an_arm_starts_from_what_it_says(tmp_path, plan, assets):
    without_critic = ["train.num_critic_only_steps=0", "rollout.over_sampling_batch_size=6"]
    claim = read_claim(
        write(
            tmp_path / "chain.yaml",
            settings=["model.critic_path=cold"],
            arms={
                "one": [],
                "two": {"critic_from": "one"},
                "three": {"pretrain_from": "one"},
                "four": ["train.advantage=grpo", "rollout.samples_per_task=2", *without_critic],
            },
        )
    )
    one, two, three, four = plan(claim, seeds=[3])
    critics = [
        [s for s in run.settings if s.startswith("model.critic_path=")][-1:]
        for run in (one, two, three, four)
    ]
    assert critics[0] == ["model.critic_path=cold"]
    assert critics[1] == [f'model.critic_path="{one.path}/checkpoints/final/critic"']
    assert critics[2] == [f'model.critic_path="{three.critic}"'] and three.critic.parent == one.path.parent
    assert critics[3] == [], "a campaign without a critic is given none"
    assert dict(two.sources) == {"critic": one} and dict(three.sources) == {"pretrain": one}
    assert all(f'model.actor_path="{assets.actor}"' in run.settings for run in (one, two, three, four))


def test_the_key_is_of_weights_and_settings_not_of_places(tmp_path, plan, assets):
    claim = read_claim(write(tmp_path / "x.yaml"))
    keys = [run.key for run in plan(claim)]
    moved = plan(claim, changes=["run_root=/elsewhere", "cluster.num_cpus=4"])
    assert [run.key for run in moved] == keys
    assert [run.key for run in plan(claim, changes=["num_steps=4"])] != keys
    (assets.critic / "model.safetensors").write_bytes(b"other weights")
    assert [run.key for run in plan(claim)] != keys


def test_arms_and_seeds_can_be_chosen(tmp_path, plan):
    arms = {"one": [], "two": ["reward.kind=binary"], "three": {"critic_from": "two"}}
    claim = read_claim(write(tmp_path / "x.yaml", arms=arms))
    assert [(run.arm, run.seed) for run in plan(claim, arms=["three"], seeds=[7])] == [
        ("two", 7),
        ("three", 7),
    ]
    assert [run.arm for run in plan(claim, form="short")] == ["one", "two"]
    with pytest.raises(ValueError, match="--arm four: no claim given has such an arm"):
        plan(claim, arms=["four"])


# ---- running: each run is a small Python process that writes a run directory

_WRITE = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from t1core.store import RunState
from tests.notebooks.run_by_hand import fill_run, open_run
path, behaviour = Path(sys.argv[1]), sys.argv[2]
if behaviour == "hang":
    time.sleep(600)
if behaviour == "die":
    sys.exit("no Ray today")
run = open_run(path)
fill_run(run, steps=4, passed=3 if "two" in path.name else 1)
if behaviour == "fail":
    run.close(RunState.FAILED, error="broken")
else:
    run.close()
"""


@pytest.fixture
def started(monkeypatch):
    """The runs that were started, in order; `behaviour` by arm and attempt says how each goes."""

    class Started(list):
        behaviour = staticmethod(lambda run, attempt: "finish")

    noted = Started()
    source = _WRITE.format(paths=[str(Path(__file__).parents[2])])

    def start(run):
        noted.append(run)
        how = noted.behaviour(run, sum(one.path == run.path for one in noted))
        run.path.parent.mkdir(parents=True, exist_ok=True)
        with claim_runs._log(run).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", source, str(run.path), how],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return claim_runs._Living(run, process, claim_runs.time.monotonic(), False)

    monkeypatch.setattr(claim_runs, "_start", start)
    return noted


def test_what_has_finished_is_not_run_again(tmp_path, plan, started):
    claim = read_claim(write(tmp_path / "x.yaml"))
    runs, said = plan(claim), []
    assert run_all(runs, num_jobs=2, say=said.append) == [] and len(started) == 4
    assert all(run.is_finished for run in runs)
    assert run_all(runs, num_jobs=2, say=said.append) == [] and len(started) == 4
    assert sum("finished before" in line for line in said) == 4


def test_a_run_starts_after_its_source_and_not_without_it(tmp_path, plan, started):
    claim = read_claim(
        write(tmp_path / "x.yaml", seeds=[0, 1, 2], arms={"one": [], "two": {"critic_from": "one"}})
    )
    started.behaviour = lambda run, attempt: "fail" if (run.arm, run.seed) == ("one", 1) else "finish"
    runs, said = plan(claim), []
    left = run_all(runs, num_jobs=4, say=said.append)
    assert [(run.arm, run.seed) for run in left] == [("one", 1), ("two", 1)]
    order = [(run.arm, run.seed) for run in started]
    assert ("two", 1) not in order and order.index(("one", 0)) < order.index(("two", 0))
    assert any("failed: broken; it is left out" in line for line in said)
    assert any("1 runs start from one that did not finish" in line for line in said)


def test_a_run_that_ended_before_its_first_step_is_tried_once_more(tmp_path, plan, started):
    claim = read_claim(write(tmp_path / "x.yaml", seeds=[0]))
    started.behaviour = lambda run, attempt: "die" if run.arm == "one" or attempt == 1 else "finish"
    runs, said = plan(claim), []
    assert [run.arm for run in run_all(runs, num_jobs=1, say=said.append)] == ["one"]
    assert [run.arm for run in started] == ["one", "one", "two", "two"]
    assert any("no Ray today; once more" in line for line in said)


def test_after_its_seconds_what_still_runs_is_ended_and_what_finished_stays(tmp_path, plan, started):
    claim = read_claim(write(tmp_path / "x.yaml", seeds=[0]))
    started.behaviour = lambda run, attempt: "hang" if run.arm == "two" else "finish"
    runs, said = plan(claim), []
    left = run_all(runs, num_jobs=2, until_s=12.0, say=said.append)
    assert [run.arm for run in left] == ["two"] and runs[0].is_finished
    assert any("s are over: 1 runs are ended, 0 were not begun" in line for line in said)


def test_kept_results_are_those_of_the_runs(tmp_path, plan, started):
    claim = read_claim(write(tmp_path / "x.yaml", seeds=[0, 1]))
    runs = plan(claim)
    run_all(runs, num_jobs=4, say=lambda line: None)
    results = results_of(claim, runs, form="full")
    path = tmp_path / "kept" / "x.zip"
    keep_results(claim, results, path)
    again = read_results(path)
    assert set(again.frames) == {("one", 0), ("two", 0), ("one", 1), ("two", 1)} and again.form == "full"
    for key, frames in results.frames.items():
        assert again.frames[key].metrics.equals(frames.metrics.dropna(axis=1, how="all").sort_index(axis=1))
        assert again.frames[key].trials["passed"].equals(frames.trials["passed"])
    text = path.read_bytes()
    assert str(tmp_path).encode() not in text and len(text) < 2**20
    before = [str(one) for one in judged_contrasts(claim, results)]
    assert [str(one) for one in judged_contrasts(claim, again)] == before
    # arm two passes 3 tests more often than one, against what was expected: -(1 - 3) / 20
    assert judged_contrasts(claim, again)[0].verdict is Verdict.NOT_HELD
    assert "verdict: not held here" in "\n".join(verdict_lines(claim, again))


def test_results_of_several_calls_are_put_together(tmp_path, plan, started):
    claim = read_claim(write(tmp_path / "x.yaml"))
    parts = []
    for arm in ("one", "two"):
        runs = plan(claim, arms=[arm])
        run_all(runs, num_jobs=2, say=lambda line: None)
        parts.append(results_of(claim, runs, form="full"))
    assert {arm for part in parts for arm, _ in part.frames} == {"one", "two"}
    assert len(merged(parts).frames) == 4 and merged(parts).unfinished == ()


def test_a_file_that_is_no_result_is_named(tmp_path):
    (tmp_path / "x.zip").write_text("nothing")
    for path in (tmp_path / "x.zip", tmp_path / "absent.zip"):
        with pytest.raises(ValueError, match="holds no results of a claim"):
            read_results(path)
