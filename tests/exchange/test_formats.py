"""Each format there and back again, with the numbers written out."""

import json
from dataclasses import replace

import numpy as np
import pytest

from t1core.exchange import (
    ATIF_VERSIONS,
    calls_from_atif,
    calls_from_rollout_details,
    row_from_agent_loop,
    row_from_sample,
    row_to_agent_loop,
    row_to_sample,
    trajectory_to_atif,
)
from t1core.records import PrefixRelation, RowStatus
from t1core.tito import assemble, audit
from tests.store.records_by_hand import row, trial


def through_json(content):
    return json.loads(json.dumps(content, default=lambda array: array.tolist()))


def assert_same_row(one, other):
    for name in ("rollout_id", "chunk", "response_length", "reward", "status", "spans"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("tokens", "loss_mask", "rollout_log_probs", "weight_versions", "rollout_routed_experts"):
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b)


def assert_same_calls(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        for name in ("model_call_id", "rollout_id", "parent_call_id", "finish_reason", "weight_version"):
            assert getattr(one, name) == getattr(other, name), name
        for name in ("prompt_token_ids", "completion_token_ids", "logprobs", "output_versions"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# tokens 1 2 3 | 4 5 | 6 | 7 of which 4, 5 and 7 were sampled


def test_a_slime_sample_has_its_words_and_comes_back_whole():
    sample = through_json(row_to_sample(row("a")))
    assert sample["tokens"] == [1, 2, 3, 4, 5, 6, 7] and sample["response_length"] == 4
    assert sample["loss_mask"] == [1, 1, 0, 1] and sample["rollout_log_probs"] == [-0.5, -0.25, 0, -1]
    assert np.shape(sample["rollout_routed_experts"]) == (6, 2, 2)
    assert (sample["weight_versions"], sample["status"], sample["reward"]) == (["3", "3"], "completed", 0.1)
    assert_same_row(row_from_sample(sample), row("a"))


def test_a_second_chunk_keeps_its_place():
    second = replace(row("a"), chunk=1, status=RowStatus.TRUNCATED)
    assert_same_row(row_from_sample(through_json(row_to_sample(second))), second)
    assert_same_row(row_from_agent_loop(through_json(row_to_agent_loop(second))), second)


def test_a_sample_of_slimes_own_making_gets_a_span_a_trained_stretch():
    sample = {
        "tokens": [1, 2, 3, 4, 5, 6, 7],
        "response_length": 4,
        "loss_mask": [1, 1, 0, 1],
        "rollout_log_probs": [-0.5, -0.25, -9, -1],
        "weight_versions": ["3", "4"],
        "reward": 0.5,
        "status": "truncated",
    }
    made = row_from_sample(sample, rollout_id="x")
    assert [(s.start, s.end, s.relation) for s in made.spans] == [
        (3, 5, PrefixRelation.STRICT),
        (6, 7, PrefixRelation.STRICT),
    ]
    assert made.weight_versions.tolist() == [-1, -1, -1, 3, 3, -1, 4]
    assert made.rollout_log_probs.tolist() == [0, 0, 0, -0.5, -0.25, 0, -1]  # nothing where the mask is 0
    whole = row_from_sample(sample | {"loss_mask": None, "weight_versions": ["3"]}, rollout_id="x")
    assert whole.loss_mask.tolist() == [0, 0, 0, 1, 1, 1, 1]
    for fault, told in (
        ({"rollout_log_probs": None}, "no rollout_log_probs"),
        ({"reward": None}, "no reward"),
        ({"reward": {"dense": 0.5}}, "put the number to train on"),
        ({"remove_sample": True}, "slime trains none of it"),
        ({"loss_mask": [1, 1, 0]}, "3 values for a response of 4"),
        ({"weight_versions": ["1", "2", "3"]}, "3 weight versions for 2 turns"),
        ({"status": "failed"}, "failed"),
        ({"rollout_routed_experts": [[1, 2]]}, "expert ids"),
    ):
        with pytest.raises(ValueError, match=told):
            row_from_sample(sample | fault, rollout_id="x")
    with pytest.raises(ValueError, match="name the rollout"):
        row_from_sample(sample)


def test_a_verl_output_has_its_words_and_comes_back_whole():
    output = through_json(row_to_agent_loop(row("a")))
    assert output["prompt_ids"] == [1, 2, 3] and output["response_ids"] == [4, 5, 6, 7]
    assert output["response_mask"] == [1, 1, 0, 1] and output["response_logprobs"] == [-0.5, -0.25, 0, -1]
    assert (output["num_turns"], output["reward_score"]) == (4, 0.1)
    assert_same_row(row_from_agent_loop(output), row("a"))
    bare = {key: value for key, value in output.items() if key != "extra_fields"}
    made = row_from_agent_loop(bare, rollout_id="x")
    assert made.weight_versions.tolist() == [-1, -1, -1, 0, 0, -1, 0] and len(made.spans) == 2


def atif(version, **options):
    one = trial("a")
    calls = {call.model_call_id: call for call in one.calls}
    return trajectory_to_atif(
        trial_id="a", task="copy it", turns=one.turns, calls=calls, schema_version=version, **options
    )


@pytest.mark.parametrize("version", ATIF_VERSIONS)
def test_an_atif_document_carries_ids_and_comes_back_whole(version):
    document = through_json(atif(version, extra={"reward": 0.1}))
    assert document["schema_version"] == version and document["trajectory_id"] == "a"
    assert [(step["step_id"], step["source"]) for step in document["steps"]] == [
        (1, "user"),
        (2, "agent"),
        (3, "agent"),
    ]
    metrics = document["steps"][2]["metrics"]
    assert (metrics["prompt_token_ids"], metrics["completion_token_ids"]) == ([1, 2, 3, 4, 5, 6], [7])
    assert document["steps"][1]["tool_calls"][0]["arguments"] == {"keystrokes": "ls 0\n", "duration": 0.1}
    assert document["final_metrics"] == {
        "total_prompt_tokens": 9,
        "total_completion_tokens": 3,
        "total_steps": 3,
    }
    assert_same_calls(calls_from_atif(document), trial("a").calls)


def test_harbors_own_reader_takes_the_document():
    models = pytest.importorskip("harbor.models.trajectories", reason="needs the harbor extra")
    for version in ATIF_VERSIONS:
        document = through_json(atif(version, extra={"reward": 0.1}, model_name="nano"))
        assert models.Trajectory.model_validate(document).to_json_dict() == document


def test_what_an_atif_document_should_not_train_is_left_out_or_refused():
    document = through_json(atif("ATIF-v1.8"))
    copied = json.loads(json.dumps(document))
    copied["steps"][1]["is_copied_context"] = True
    assert [call.model_call_id for call in calls_from_atif(copied)] == ["a-c1"]
    sub = through_json(atif("ATIF-v1.8")) | {"trajectory_id": "sub", "session_id": None}
    for step in sub["steps"][1:]:
        del step["metrics"]["extra"]
    calls = calls_from_atif(document | {"subagent_trajectories": [sub]}, weight_version=5)
    assert [call.model_call_id for call in calls] == ["a-c0", "a-c1", "sub/2", "sub/3"]
    assert {call.rollout_id for call in calls} == {"a"} and calls[3].output_versions.tolist() == [5]
    for fault, told in (
        ({"llm_call_count": 2}, "step 2 of a lumps 2 calls"),
        ({"metrics": None}, "step 2 of a has no prompt_token_ids"),
        (
            {"metrics": document["steps"][1]["metrics"] | {"logprobs": [-1]}},
            "2 completion_token_ids and 1 logprobs",
        ),
    ):
        bad = json.loads(json.dumps(document))
        bad["steps"][1] |= fault
        with pytest.raises(ValueError, match=told):
            calls_from_atif(bad)
    with pytest.raises(ValueError, match=r"ATIF-v1\.6"):
        calls_from_atif(document | {"schema_version": "ATIF-v1.6"})


def test_harbors_rollout_details_become_calls_that_assemble():
    routes = [[[[j, j + 1]] for j in range(n)] for n in (4, 7)]
    main = {
        "prompt_token_ids": [[1, 2, 3], [1, 2, 3, 4, 5, 6]],
        "completion_token_ids": [[4, 5], [7, 8]],
        "logprobs": [[-0.5, -0.25], [-1, -2]],
        "extra": {"routed_experts": routes},
    }
    summary = {
        "prompt_token_ids": [[9, 9]],
        "completion_token_ids": [[7]],
        "logprobs": [[-3]],
        "extra": {"routed_experts": [routes[0][:2]]},
    }
    calls = calls_from_rollout_details([main, summary], rollout_id="t", weight_version=2)
    assert [(c.model_call_id, c.parent_call_id) for c in calls] == [
        ("t/0.0", None),
        ("t/0.1", "t/0.0"),
        ("t/1.0", None),
    ]
    first, second = assemble(calls, reward=1.0, status=RowStatus.COMPLETED)
    assert first.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert first.loss_mask.tolist() == [0, 0, 0, 1, 1, 0, 1, 1]
    assert first.rollout_log_probs.tolist() == [0, 0, 0, -0.5, -0.25, 0, -1, -2]
    assert first.rollout_routed_experts[:, 0].tolist() == [[j, j + 1] for j in range(7)]
    assert second.tokens.tolist() == [9, 9, 7] and set(first.weight_versions.tolist()) == {-1, 2}
    assert audit(calls, [first, second]).problems == ()
    with pytest.raises(ValueError, match="2 prompt_token_ids, 2 completion_token_ids, 1 logprobs"):
        calls_from_rollout_details([main | {"logprobs": [[-1, -2]]}], rollout_id="t")
