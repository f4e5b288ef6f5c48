"""Which checkpoints are whole, which may go, and what a killed writer leaves."""

import json

import pytest

from t1core.train.checkpoint_directory import (
    MANIFEST,
    damage,
    newest_whole,
    prune,
    recovered,
    write_manifest,
)


def make(root, step, *, is_damaged=False):
    path = root / f"step_{step:04d}"
    (path / "hf" / "actor").mkdir(parents=True)
    (path / "trainer.json").write_text("{}")
    weights = path / "hf" / "actor" / "model.safetensors"
    weights.write_bytes(bytes(100))
    write_manifest(path, content="exact")
    if is_damaged:
        weights.write_bytes(bytes(60))
    return path


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_a_cut_or_missing_file_is_found_and_named(tmp_path):
    whole = make(tmp_path, 1)
    assert damage(whole) is None
    (whole / "hf" / "actor" / "model.safetensors").write_bytes(bytes(99))
    assert "should have 100 bytes and has 99" in damage(whole)
    (whole / "trainer.json").unlink()
    (whole / "hf" / "actor" / "model.safetensors").write_bytes(bytes(100))
    assert "trainer.json should have 2 bytes and is missing" in damage(whole)
    assert damage(tmp_path / "nothing") is not None


def test_the_first_version_without_a_list_of_files_is_taken_at_its_word(tmp_path):
    old = make(tmp_path, 1)
    (old / MANIFEST).unlink()
    assert damage(old) is None and newest_whole(tmp_path) == old


def test_a_newer_version_is_refused(tmp_path):
    path = make(tmp_path, 1)
    manifest = json.loads((path / MANIFEST).read_text()) | {"schema_version": 3}
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="newer version of this package"):
        damage(path)


def test_all_but_the_newest_are_pruned(tmp_path):
    for step in (2, 4, 6, 8):
        make(tmp_path, step)
    removed = prune(tmp_path, keep=2)
    assert [path.name for path in removed] == ["step_0004", "step_0002"]
    assert names(tmp_path) == ["step_0006", "step_0008"]
    assert prune(tmp_path, keep=2) == []


def test_the_only_good_checkpoint_outlives_any_number_of_damaged_newer_ones(tmp_path):
    make(tmp_path, 2)
    for step in (4, 6):
        make(tmp_path, step, is_damaged=True)
    assert prune(tmp_path, keep=1) == []
    assert newest_whole(tmp_path).name == "step_0002"
    make(tmp_path, 8)
    prune(tmp_path, keep=1)
    assert names(tmp_path) == ["step_0008"]


def test_a_policy_that_keeps_nothing_is_not_accepted(tmp_path):
    with pytest.raises(AssertionError, match="only good"):
        prune(tmp_path, keep=0)


def test_what_killed_writers_left_is_put_back_or_removed(tmp_path):
    make(tmp_path, 2).rename(tmp_path / ".step_0002.old")  # killed between moving aside and putting in place
    make(tmp_path, 4)
    make(tmp_path, 5).rename(tmp_path / ".step_0005.partial")
    make(tmp_path, 3).rename(tmp_path / ".step_0004.old")
    assert not recovered(tmp_path / "step_0004")
    assert prune(tmp_path, keep=2) == []
    assert names(tmp_path) == ["step_0002", "step_0004"]
    assert damage(tmp_path / "step_0002") is None
