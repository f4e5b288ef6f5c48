"""Harbor's own Terminus-2 driving `t1 serve`: what it collected itself, and what the server captured of it.

Needs Harbor 0.25 in an environment of its own: T1CORE_HARBOR_PYTHON names the Python of one that has harbor, numpy
and tokenizers.
"""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from t1core.exchange import calls_from_rollout_details
from t1core.records import RowStatus
from t1core.rollout.chat import ChatFormat
from t1core.store.token_file import read_rows
from t1core.tito import assemble, audit
from tests.rollout.served import nano_policy, post, serve

CLIENT = Path(__file__).with_name("terminus2_client.py")
ROOT = CLIENT.parents[2]


@pytest.fixture(scope="module")
def harbor_python():
    python = os.environ.get("T1CORE_HARBOR_PYTHON")
    if not python:
        pytest.skip("T1CORE_HARBOR_PYTHON is not set: it names a Python that has harbor")
    return python


def stretches(rows):
    """The trained ids of each turn."""
    return sorted(row.tokens[span.start : span.end].tolist() for row in rows for span in row.spans)


@pytest.mark.slow
@pytest.mark.parametrize("history", ["tokens", "rendered"])
def test_terminus2_is_captured_as_it_was_sampled_summaries_and_all(harbor_python, tmp_path, history):
    model = nano_policy(tmp_path / "nano")
    options = ["--context-tokens", "16000", "--max-new-tokens", "1024", "--history", history]
    with serve(model, *options, "--rows-dir", str(tmp_path)) as address:
        told = tmp_path / "told.json"
        done = subprocess.run(
            [harbor_python, CLIENT, address, "trial-1__agent", told],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        ended = post(f"{address}/sessions/trial-1__agent/end", {"reward": 0.25})
    found = json.loads(told.read_text())
    print(f"\n{history}: {found['summaries']} summaries; {ended}")
    assert found["summaries"] > 0
    assert ended["num_delivered"] == ended["num_sampled"] == ended["num_loss_tokens"]
    rows = read_rows(Path(ended["file"]), completed=())
    assert len(stretches(rows)) == ended["num_calls"]
    for row in rows:
        assert len(row.rollout_routed_experts) == len(row.tokens) - 1
    # Harbor keeps no call that its client took for an error, as an answer cut by length is.
    calls = calls_from_rollout_details(found["details"], rollout_id="t")
    captured = stretches(rows)
    for call in calls:
        captured.remove(call.completion_token_ids.tolist())
    assert all(len(ids) == 1024 for ids in captured)
    chat = ChatFormat.load(model)
    own = assemble(calls, reward=0.25, status=RowStatus.COMPLETED, text_of=chat.text_of)
    assert audit(calls, own, text_of=chat.text_of).problems == ()
    logprobs = {
        tuple(row.tokens[span.start : span.end]): row.rollout_log_probs[span.start : span.end]
        for row in rows
        for span in row.spans
    }
    for call in calls:
        np.testing.assert_array_equal(call.logprobs, logprobs[tuple(call.completion_token_ids)])
