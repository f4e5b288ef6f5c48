"""What a Dockerfile's RUN installs is taken out of it, and the rest is run as it was written."""

import pytest

from t1core.sandbox.packages import Needs, missing, take_apart


@pytest.mark.parametrize(
    ("command", "left", "needs"),
    [
        (
            "apt-get update && apt-get install -y git=1:2.43 tmux && make",
            "make",
            Needs(debian=("git=1:2.43", "tmux")),
        ),
        ("pip install 'numpy>=2' && rm -rf /var/lib/apt/lists/*", "", Needs(python=("numpy>=2",))),
        ("make all", "make all", Needs()),
        # Blanks that are quoted are the command's own.
        ("apt-get update && printf 'a  b' > /app/f", "printf 'a  b' > /app/f", Needs()),
        # So is a && that is.
        ('echo "a && apt-get update && b" > /app/f', 'echo "a && apt-get update && b" > /app/f', Needs()),
        ("pip install -r requirements.txt", "pip install -r requirements.txt", Needs()),
    ],
)
def test_what_is_installed_is_taken_out_and_the_rest_stays_as_written(command, left, needs):
    assert take_apart(command) == (left, needs)


def test_what_the_system_has_in_another_version_is_missing(tmp_path):
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: git\nStatus: install ok installed\nVersion: 1:2.39\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n"
        "Package: mawk\nStatus: install ok installed\nVersion: 1.3\nProvides: awk\n"
    )
    (tmp_path / "usr/lib/python3/dist-packages/numpy-1.26.dist-info").mkdir(parents=True)
    (tmp_path / "usr/lib/python3/dist-packages/numpy-1.26.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: numpy\nVersion: 1.26\n"
    )
    needs = Needs(debian=("git", "git=1:2.43", "gone", "awk"), python=("numpy", "Numpy>=2", "torch"))
    assert missing(needs, system=tmp_path) == ("git=1:2.43", "gone", "Numpy>=2", "torch")
