"""The trial page in a real browser: what a hostile terminal wrote runs nowhere, and links unfold what they lead to."""

import html
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from t1core.store import Run
from t1core.view import trial_page
from tests.store.records_by_hand import trial

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OWNED = "owned by the terminal"
SET = f"document.title='{OWNED}'"
HOSTILE = (
    f'</pre></details><script>{SET}</script><img src=x onerror="{SET}"><svg onload="{SET}"></svg>'
    f'<a href="javascript:{SET}">x</a><iframe srcdoc="<script>parent.{SET}</script>"></iframe>'
    f"\x1b]8;;javascript:{SET}\x07link\x1b]8;;\x07\x1b]0;{OWNED}\x07"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a trial whose every text is hostile."""
    made = trial("a")
    turns = tuple(
        replace(
            turn,
            response=HOSTILE,
            screen=HOSTILE,
            colours=HOSTILE,
            observation=HOSTILE,
            commands=((HOSTILE, 1.0),),
        )
        for turn in made.turns
    )
    tests = tuple(replace(test, name=f"test.py::{HOSTILE}", message=HOSTILE) for test in made.grade.tests)
    grade = replace(made.grade, tests=tests, stdout_tail=HOSTILE, flags=(HOSTILE,))
    run = Run.create(tmp_path_factory.mktemp("run"), campaign="c", run_name="r", config={}, provenance={})
    run.record_trajectories([replace(made, turns=turns, grade=grade, task_id=HOSTILE)], step=0)
    return trial_page(run.trajectory("a")).html


def opened(text, tmp_path):
    """The document as the browser holds it once its scripts, if any, have run."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install -y chromium")
    path = tmp_path / "page.html"
    path.write_text(text)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True
    )
    return done.stdout


def title(document):
    found = re.search(r"<title>(.*?)</title>", document, re.S)
    return "" if found is None else found[1]


def test_a_hostile_terminal_runs_no_script(page, tmp_path):
    document = opened(page, tmp_path)
    assert OWNED not in title(document)
    assert document.count('<details class="turn"') == 2  # the whole page was read
    tags = set(re.findall(r"<([a-z]+)", re.sub(r"(?s)<style>.*?</style>", "", document)))
    assert tags.isdisjoint({"script", "img", "svg", "iframe", "object"})


def test_the_same_text_unescaped_would_run_but_for_the_pages_policy(page, tmp_path):
    (policy,) = re.findall(r"<meta http-equiv=[^>]*>", page)
    bare = html.unescape(page.replace(policy, ""))
    assert title(opened(bare, tmp_path)) == OWNED
    kept = page.index(policy) + len(policy)
    guarded = page[:kept] + html.unescape(page[kept:])
    (tmp_path / "again").mkdir()
    assert title(opened(guarded, tmp_path / "again")) != OWNED
