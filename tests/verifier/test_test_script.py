"""Which test.sh the pre-imported grader may stand in for."""

import pytest

from t1core.verifier.test_script import asks_for_report, can_be_put_away, is_standard
from tests.verifier.trials import TEST_SH

RUN = "pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py"


@pytest.mark.parametrize(
    "script",
    [
        TEST_SH,
        RUN,
        f"#!/bin/bash\n# runs the tests\nmkdir -p /logs/verifier\n{RUN} -rA -q\n",
        "python3 -m pytest /tests/test_outputs.py --ctrf=/logs/verifier/ctrf.json",
        f"if {RUN}; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi",
        f"{RUN}; if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; fi",
        f"if {RUN} -q\nthen\n  echo 1.0 > /logs/verifier/reward.txt\nfi\n",
        f"set -u\n{RUN}\nif [ $? -eq 0 ]; then\n  echo 1 > /logs/verifier/reward.txt\nelse\n"
        "  echo 0 > /logs/verifier/reward.txt\nfi\nexit 0\n",
    ],
)
def test_the_standard_line_is_recognised(script):
    assert is_standard(script)


@pytest.mark.parametrize(
    "script",
    [
        "",
        "pytest /tests/test_outputs.py",
        f"export PYTHONPATH=/app\n{RUN}",
        f"{RUN} -k fast",
        f"{RUN} /tests/test_more.py",
        f"python3 -m http.server &\n{RUN}",
        f"{RUN} && rm -rf /app",
        f"{RUN}\n{RUN}",
        f"if {RUN}; then python3 /tests/more.py; fi",
        f"if grep -q def /app/solution.py; then {RUN}; fi",
        f"if ! {RUN}; then echo 0 > /logs/verifier/reward.txt; fi",
        f"if {RUN} | tee /tmp/log; then echo 1 > /logs/verifier/reward.txt; fi",
        "uvx --with pytest==8.4.1 pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py",
        "pytest --ctrf '/logs/verifier/ctrf.json /tests/test_outputs.py",
    ],
)
def test_anything_else_runs_as_it_stands(script):
    assert not is_standard(script)


def test_asking_for_a_report_is_seen():
    assert asks_for_report("pytest --ctrf=/logs/verifier/ctrf.json")
    assert not asks_for_report("pytest --junitxml=/logs/verifier/ctrf.json")


@pytest.mark.parametrize(
    ("source", "beside", "expected"),
    [
        ("def test_a(): assert True\n", (), True),
        ("def test_a(): assert open('/app/tests.txt').read()\n", (), True),
        ("def test_a(): assert open('/tests/x').read()\n", (), False),
        ("from pathlib import Path\nHERE = Path(__file__).parent\n", (), False),
        ("import inspect\n", (), False),
        ("def test_a(): assert True\n", ("expected.txt",), False),
    ],
)
def test_tests_that_need_their_own_files_are_not_put_away(tmp_path, source, beside, expected):
    (tmp_path / "test_outputs.py").write_text(source)
    for name in ("test.sh", *beside):
        (tmp_path / name).write_text("")
    assert can_be_put_away(tmp_path) is expected
