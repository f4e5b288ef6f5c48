"""What a task's own script says in its reward files."""

import json

import pytest

from t1core.verifier.declared import Declared, read_declared


def said(**files):
    return read_declared(json.dumps({name.replace("_", "."): text for name, text in files.items()}).encode())


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({}, 0.0),
        ({"reward_txt": "1\n"}, 1.0),
        ({"reward_txt": "0.25"}, 0.25),
        ({"reward_json": '{"reward": 0.5, "speed": 1}'}, 0.5),
        ({"reward_json": '{"speed": 0.75}'}, 0.75),
        ({"reward_json": '{"reward": 1}', "reward_txt": "1.0"}, 1.0),
    ],
)
def test_what_is_in_order_counts(files, reward):
    assert said(**files) == Declared(reward)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"reward_txt": ""}, "reward.txt is empty"),
        ({"reward_txt": "one"}, "reward.txt is no number"),
        ({"reward_txt": "nan"}, "reward.txt is not from 0 to 1"),
        ({"reward_txt": "-1"}, "reward.txt is not from 0 to 1"),
        ({"reward_json": '{"reward": 1' + "0" * 400 + "}"}, "reward.json is not from 0 to 1"),
        ({"reward_txt": "1" + "0" * 400}, "reward.txt is not from 0 to 1"),
        ({"reward_txt": "1.5"}, "reward.txt is not from 0 to 1"),
        ({"reward_txt": "1 1"}, "reward.txt is no number"),
        ({"reward_json": ""}, "reward.json is not whole JSON"),
        ({"reward_json": '{"reward": 1'}, "reward.json is not whole JSON"),
        ({"reward_json": "1"}, "reward.json is no object of numbers"),
        ({"reward_json": "{}"}, "reward.json is no object of numbers"),
        ({"reward_json": '{"reward": NaN}'}, "reward.json holds NaN"),
        ({"reward_json": '{"reward": true}'}, "reward.json is no object of numbers"),
        ({"reward_json": '{"reward": {"a": 1}}'}, "reward.json is no object of numbers"),
        ({"reward_json": '{"a": 1, "b": 1}'}, "reward.json has several values and none is called reward"),
        ({"reward_json": "[" * 2000}, "reward.json is nested too deep"),
    ],
)
def test_what_is_not_is_worth_nothing_and_flagged(files, why):
    assert said(**files) == Declared(0.0, (f"reward:{why}",))


def test_reward_json_wins_and_a_disagreement_is_flagged():
    assert said(reward_json='{"reward": 0}', reward_txt="1") == Declared(
        0.0, ("reward:the two files disagree",)
    )
    assert read_declared(b"cut") == Declared(0.0, ("reward:unreadable",))
