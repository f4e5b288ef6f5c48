"""Pools: the index, splits, and orders that survive a resume."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest

from t1core.tasks.index import INDEX_NAME, write_index
from t1core.tasks.order import draws, epoch_order
from t1core.tasks.pool import Pool


def test_an_epoch_visits_every_task_once_and_the_next_epoch_in_another_order():
    first, second = epoch_order(50, seed=1, epoch=0), epoch_order(50, seed=1, epoch=1)
    assert sorted(first) == sorted(second) == list(range(50))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, epoch_order(50, seed=2, epoch=0))


def test_draws_continue_across_epochs_and_do_not_depend_on_where_they_were_cut():
    whole = draws(7, seed=3, start=0, number=30)
    expected = np.concatenate([epoch_order(7, seed=3, epoch=epoch) for epoch in range(5)])[:30]
    np.testing.assert_array_equal(whole, expected)
    parts = [draws(7, seed=3, start=a, number=b - a) for a, b in pairwise([0, 5, 5, 6, 20, 30])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_without_shuffling_the_order_is_the_index_order():
    assert draws(3, seed=9, start=2, number=5, shuffle=False).tolist() == [2, 0, 1, 2, 0]


def test_drawing_from_nothing_is_refused():
    with pytest.raises(ValueError, match="num_tasks is 0"):
        draws(0, seed=0, start=0, number=1)
    with pytest.raises(ValueError, match="start -1"):
        draws(3, seed=0, start=-1, number=1)


def test_a_stretch_gives_tasks_ready_to_run_and_resumes(pool):
    whole = pool.stretch("train", seed=0, start=0, count=40)
    again = pool.stretch("train", seed=0, start=25, count=15)
    assert [task.task_id for task in again] == [task.task_id for task in whole[25:]]
    assert len({task.task_id for task in whole[:32]}) == 32  # an epoch of this split
    assert all(task.path.is_absolute() and task.split == "train" for task in whole)


def test_the_index_says_of_each_task_what_the_task_says(pool):
    assert pool.splits == ("heldout", "heldout_family", "train")
    for split in pool.splits:
        for entry, task in zip(pool.split(split), pool.tasks(split), strict=True):
            assert (entry.task_id, entry.family, entry.split) == (task.task_id, task.family, task.split)
            assert (entry.test_names, entry.level) == (task.test_names, task.metadata["level"])


def test_the_first_tasks_of_a_split_are_of_different_families(pool):
    assert len({entry.family for entry in pool.split("train")[:16]}) == 16


def test_opening_reads_the_index_and_not_the_tasks(pool, tmp_path):
    shutil.copy(pool.directory / INDEX_NAME, tmp_path)
    assert list(Pool.open(tmp_path).entries) == list(pool.entries)


def test_a_directory_without_an_index_is_scanned_and_an_unmeasured_nop_stays_unmeasured(pool, tmp_path):
    entry = pool.split("train")[0]
    shutil.copytree(pool.directory / entry.path, tmp_path / "nested" / entry.path)
    scanned = Pool.open(tmp_path)
    assert [e.task_id for e in scanned.entries] == [entry.task_id]
    assert scanned.entries[0].content_hash == entry.content_hash
    assert scanned.entries[0].nop_passed is None
    assert entry.nop_passed == ()


def test_a_changed_task_is_noticed(pool, tmp_path):
    shutil.copytree(pool.directory, tmp_path / "pool")
    copy = Pool.open(tmp_path / "pool")
    assert copy.changed() == ()
    first, second = copy.entries[:2]
    (copy.directory / first.path / "tests" / "test_outputs.py").open("a").write("\n")
    (copy.directory / second.path / "solution" / "solve.sh").chmod(0o644)
    assert copy.changed() == (first.task_id, second.task_id)


def test_an_empty_pool_and_an_absent_one_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        Pool.open(tmp_path)
    with pytest.raises(ValueError, match="is empty"):
        write_index(tmp_path)
    with pytest.raises(ValueError, match="no such directory"):
        Pool.open(tmp_path / "absent")


def test_an_empty_split_is_refused_with_the_splits_there_are(pool):
    with pytest.raises(ValueError, match="split 'test' has no task; it has heldout, heldout_family, train"):
        pool.tasks("test")


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema_version": 2}\n{"task', '{"schema_version": 2}\n{"task_id": "a"}']
)
def test_a_damaged_index_is_refused_with_the_way_out(tmp_path, text):
    (tmp_path / INDEX_NAME).write_text(text)
    with pytest.raises(ValueError, match=r"damaged.*index the pool again"):
        Pool.open(tmp_path)


def test_an_index_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / INDEX_NAME).write_text(json.dumps({"schema_version": 99}) + "\n")
    with pytest.raises(ValueError, match="schema version 99"):
        Pool.open(tmp_path)


def test_two_tasks_of_one_name_are_refused(pool, tmp_path):
    entry = pool.entries[0]
    for parent in ("a", "b"):
        shutil.copytree(pool.directory / entry.path, tmp_path / parent / entry.path)
    with pytest.raises(ValueError, match="share a name"):
        write_index(tmp_path)
