"""Provenance against a real git repository."""

import hashlib
import subprocess

from t1core.store import collect_provenance


def _git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True
    ).stdout.decode()


def test_commit_diff_and_untracked_files_are_recorded(tmp_path):
    _git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    _git(tmp_path, "add", "a.py")
    _git(tmp_path, "commit", "-qm", "first")
    clean = collect_provenance(tmp_path)["git"]
    assert clean["commit"] == _git(tmp_path, "rev-parse", "HEAD").strip()
    assert clean["is_clean"]
    (tmp_path / "a.py").write_text("x = 2\n")
    (tmp_path / "né w.py").write_text("new")
    changed = collect_provenance(tmp_path)["git"]
    assert not changed["is_clean"]
    assert "+x = 2" in changed["diff"]
    assert changed["untracked"] == {"né w.py": hashlib.sha256(b"new").hexdigest()}


def test_outside_a_checkout_the_reason_is_recorded_and_the_rest_still_stands(tmp_path):
    provenance = collect_provenance(tmp_path)
    assert provenance["git"]["commit"] is None
    assert "git" in provenance["git"]["reason"]
    assert provenance["packages"]["numpy"]
    assert provenance["machine"]["memory_bytes"] > 0
