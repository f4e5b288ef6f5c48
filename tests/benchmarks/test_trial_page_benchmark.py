"""The page benchmark's small form: both ways show every token, and its numbers are what they say."""

import json
import sys

from benchmarks import trial_page
from t1core.view import token_strip


def test_both_ways_show_every_token_and_one_element_a_token_is_what_it_says():
    before = token_strip._runs
    found = trial_page.measure(num_turns=4, num_tokens=400, noise=0.0, repeats=1)
    ways = found["ways"]
    assert ways["element_a_token"]["elements"] == 400
    assert ways["run_length"]["elements"] < 60
    assert ways["run_length"]["bytes"] < ways["element_a_token"]["bytes"]
    assert token_strip._runs is before


def test_the_command_writes_its_numbers(monkeypatch, tmp_path, capsys):
    output = tmp_path / "page.json"
    options = ["--num-turns", "2", "--num-tokens", "100", "--repeats", "1", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["trial_page.py", *options])
    trial_page.main()
    assert [one["parameters"]["noise"] for one in json.loads(output.read_text())] == [0.0, 0.02, 1.0]
    assert "element_a_token" in capsys.readouterr().out
