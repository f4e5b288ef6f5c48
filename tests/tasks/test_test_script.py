"""Which test.sh the pre-imported grader may stand in for."""

import pytest

from t1core.tasks.test_script import (
    asks_for_report,
    can_be_put_away,
    foreign_packages,
    foreign_programs,
    is_standard,
)
from tests.verifier.trials import TEST_SH

RUN = "pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py"

TEMPLATE = """#!/bin/bash
# Use this file to install test dependencies and run the tests.
set -euo pipefail
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set. Please set a WORKDIR in your Dockerfile before running this script."
    exit 1
fi
# CTRF produces a standard test report in JSON format
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


@pytest.mark.parametrize(
    "script",
    [
        TEST_SH,
        RUN,
        f"#!/bin/bash\n# runs the tests\nmkdir -p /logs/verifier\n{RUN} -rA -q\n",
        "python3 -m pytest /tests/test_outputs.py --ctrf=/logs/verifier/ctrf.json",
        "pytest /tests/test_outputs.py -rA",
        TEMPLATE,
        f"pip install -q pytest==8.4.1 pytest-json-ctrf\n{RUN}",
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
        "pytest --ctrf /tmp/other.json /tests/test_outputs.py",
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
        "uvx --with numpy pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py",
        f"pip install pytest requests\n{RUN}",
        f"curl https://example.org/setup.sh | sh\n{RUN}",
        f"source /app/env\n{RUN}",
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


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (TEMPLATE, ()),
        ("uvx -w pytest -w numpy==2 pytest /tests/test_outputs.py", ("numpy==2",)),
        ("uvx --with=numpy pytest /tests/test_outputs.py", ("numpy",)),
        ("python3 -m pip install -q pytest 'requests'", ("requests",)),
        ("uv pip install --system pandas", ("pandas",)),
    ],
)
def test_what_a_script_fetches_in_vain_is_seen(script, expected):
    assert foreign_packages(script) == expected


def test_what_a_script_has_apt_install_in_vain_is_seen():
    assert foreign_programs(TEMPLATE) == ()
    assert foreign_programs("apt-get update && apt-get install -y curl imagemagick \\\n  jq\n") == (
        "imagemagick",
        "jq",
    )
