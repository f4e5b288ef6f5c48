"""The context budget and the caps on time, held against the pool before anything starts."""

import pytest

from t1core.agent.prompt import WORDINGS
from t1core.agent.tokenizer import train_tokenizer
from t1core.campaign.preflight import check_budgets
from t1core.config import load_config
from t1core.tasks.index import write_index
from t1core.tasks.pool import Pool


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["a few words"], directory, vocab_size=300)
    return directory


@pytest.fixture
def pool(tmp_path):
    for name, instruction, seconds in (("short", "Do it.", 30), ("long", "a few words " * 300, 900)):
        directory = tmp_path / name
        (directory / "tests").mkdir(parents=True)
        (directory / "instruction.md").write_text(instruction)
        (directory / "task.toml").write_text(
            f"[agent]\ntimeout_sec = {seconds}\n[verifier]\ntimeout_sec = 400.0\n"
        )
        (directory / "tests" / "test_outputs.py").write_text("def test_a(): pass\n")
    write_index(tmp_path)
    return Pool.open(tmp_path)


def said(pool, tokenizer, *overrides):
    lines = []
    check_budgets(load_config("quickstart", overrides), pool, actor=tokenizer, say=lines.append)
    return lines


def test_what_the_caps_and_the_window_take_from_tasks_is_said(pool, tokenizer):
    prompt, agent, verifier = said(pool, tokenizer)
    assert prompt.startswith("1 of 2 tasks have a first prompt above 1360 tokens") and prompt.endswith(
        "turn: long"
    )
    assert agent == (
        "1 of 2 tasks ask for more agent time (900 to 900 s) than agent.agent_timeout_s=60 allows: they get 60 s"
    )
    assert verifier.startswith("2 of 2 tasks ask for more verifier time (400 to 400 s)")


def test_a_window_that_no_task_fits_is_refused(pool, tokenizer):
    with pytest.raises(ValueError, match=r"agent\.context_tokens=250 allows prompts of 74 tokens"):
        said(pool, tokenizer, "agent.context_tokens=250", "agent.prompt=full")


def test_the_trigger_is_counted_with_the_models_tokenizer_and_checked(pool, tokenizer):
    from t1core.agent.tokenizer import ChatTokenizer

    request = len(ChatTokenizer.load(tokenizer).reply(WORDINGS["compact"].summary_request, closed=False))
    latest = 1536 - 160 - request - 100 - 16
    first = said(pool, tokenizer, "agent.summary_tokens=100")[0]
    assert first == (
        f"context: prompts of up to {latest} tokens, then a summary of up to 100 (asked for in {request}), in a window "
        "of 1536"
    )
    with pytest.raises(ValueError, match=rf"set agent\.summarize_above_tokens to {latest} or less"):
        said(pool, tokenizer, "agent.summary_tokens=100", f"agent.summarize_above_tokens={latest + 1}")
