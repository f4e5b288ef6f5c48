"""The verifiers of a pool of one's own are asked before a campaign starts, and the answers are kept."""

import pytest

from t1core.campaign.campaign import in_order
from t1core.campaign.pool_check import check_verifiers
from t1core.config import load_config
from t1core.tasks.index import write_index
from t1core.tasks.pool import Pool

TWO = "def test_a(): pass\n\n\ndef test_b(): assert open('/app/out.txt').read()\n"
SCRIPT = "#!/bin/bash\nfalse && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
MUTE = "import nothing_there\n\n\ndef test_a(): pass\n\n\ndef test_b(): pass\n"


def write(directory, *, tests=TWO, script=None):
    (directory / "tests").mkdir(parents=True)
    (directory / "instruction.md").write_text("Write something to /app/out.txt.\n")
    (directory / "task.toml").write_text("[verifier]\ntimeout_sec = 60.0\n")
    if tests:
        (directory / "tests" / "test_outputs.py").write_text(tests)
    if script:
        (directory / "tests" / "test.sh").write_text(script)


def checked(directory, *overrides):
    write_index(directory)
    said = []
    config = load_config("smoke", [f"tasks.pool={directory}", *overrides])
    return check_verifiers(config, Pool.open(directory), say=said.append), said


def test_the_answers_are_counted_said_and_given_to_be_kept(tmp_path):
    write(tmp_path / "counts")
    write(tmp_path / "declares", tests="", script=SCRIPT)
    write(tmp_path / "mute", tests=MUTE)
    write(tmp_path / "solved", tests="def test_a(): pass\n\n\ndef test_b(): pass\n")
    answers, said = checked(tmp_path)
    assert (answers["num_sampled"], answers["num_reported"], answers["num_declared"]) == (4, 2, 1)
    assert list(answers["silent"]) == ["mute"] and answers["silent"]["mute"]
    assert answers["solved_untouched"] == ("solved",)
    assert said[0].startswith(
        "verifiers: 2 of 4 sampled tasks report their tests, 1 declare a number; silent: mute ("
    )
    assert said[1:] == ["solved with nothing done: solved"]


def test_a_pool_whose_verifiers_are_all_silent_is_refused_with_the_way_out(tmp_path):
    write(tmp_path / "mute", tests=MUTE)
    with pytest.raises(ValueError, match=r"not one of 1 sampled verifiers .*mute.*t1 verify TASK"):
        checked(tmp_path)


def test_where_nothing_is_counted_the_dense_reward_is_said_to_be_what_is_declared(tmp_path):
    write(tmp_path / "declares", tests="", script=SCRIPT)
    assert "the number that their scripts declare" in checked(tmp_path)[1][1]
    assert len(checked(tmp_path, "reward.kind=binary")[1]) == 1


def test_the_sample_is_as_large_as_asked_and_drawn_by_the_seed(tmp_path):
    for i in range(4):
        write(tmp_path / f"task-{i}", tests=TWO if i else MUTE)
    assert checked(tmp_path, "tasks.startup_sample=1")[0]["num_sampled"] == 1
    assert checked(tmp_path, "tasks.startup_sample=0") == (None, [])


def test_the_practice_pool_is_not_asked_again(tmp_path):
    write(tmp_path / "counts")
    write_index(tmp_path)
    assert check_verifiers(load_config("smoke"), Pool.open(tmp_path), say=print) is None


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("disk", ["a", "b", "c"]),
        ("most_tests_first", ["b", "a", "c"]),
        ("fewest_tests_first", ["c", "a", "b"]),
        ("easiest_first", ["c", "b", "a"]),
    ],
)
def test_an_unshuffled_campaign_trains_in_its_order_and_evaluates_as_any_other(tmp_path, order, names):
    for name, number, level in (("a", 2, 3), ("b", 3, 2), ("c", 1, 1)):
        for split in ("train", "heldout"):
            task = tmp_path / (name if split == "train" else f"{name}-{split}")
            write(task, tests="".join(f"def test_{i}(): pass\n\n\n" for i in range(number)))
            (task / "task.toml").write_text(f'[metadata]\nlevel = {level}\nsplit = "{split}"\n')
    config = load_config("smoke", ["tasks.shuffle=false", f"tasks.order={order}"])
    pool = in_order(Pool.open(tmp_path), config)
    drawn = pool.stretch("train", seed=0, start=0, count=4, shuffle=config.tasks.shuffle)
    assert [task.task_id for task in drawn] == [*names, names[0]]
    assert [entry.task_id for entry in pool.split("heldout")] == ["a-heldout", "b-heldout", "c-heldout"]
