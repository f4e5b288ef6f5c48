"""Furnishing a box from a task's environment, and moving files in and out of it."""

import os

import pytest

from t1core.sandbox.dockerfile import Copy, Run, read_recipe
from tests.sandbox.boxes import in_sandbox, spec


def environment(path, dockerfile, **files):
    """An environment directory; `files` maps names (with __ for /) to contents."""
    path.mkdir()
    (path / "Dockerfile").write_text(dockerfile)
    for name, text in files.items():
        target = path / name.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return path


def test_copy_env_workdir_and_run_take_effect_in_order(tmp_path):
    directory = environment(
        tmp_path / "environment",
        "FROM ubuntu:24.04\n# a comment\nENV COLOR=blue SHAPE='a box'\nWORKDIR /app/work\nCOPY files/ /app/\n"
        "COPY files/a.txt b.txt\nRUN echo $COLOR $SHAPE > made.txt && \\\n    cat b.txt >> made.txt\n"
        "COPY files/a.txt /data/late/\n",
        **{"files__a.txt": "first\n", "files__deep__c.txt": "deep\n"},
    )

    async def run(sandbox):
        box = await sandbox.open(spec(environment_dir=directory))
        done = await box.exec("pwd; cat made.txt /app/deep/c.txt /data/late/a.txt; echo $COLOR", timeout_s=10)
        assert done.stdout.decode() == "/app/work\nblue a box\nfirst\ndeep\nfirst\nblue\n"
        done = await box.exec("stat -c %U /app/a.txt /data/late/a.txt; touch /app/a.txt", timeout_s=10)
        assert done.stdout == b"root\nroot\n"
        layer = await box.snapshot()
        assert (layer.directories["/app"] / "work" / "made.txt").read_text() == "blue a box\nfirst\n"
        assert (layer.directories["/data"] / "late" / "a.txt").exists()
        assert layer.workdir == "/app/work"
        layer.close()
        assert not layer.path.exists()

    in_sandbox(run)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("USER bob", "one user, root"),
        ("ADD http://x/y /app/", "use COPY"),
        ("ADD a.tar.gz /app/", "use COPY and RUN tar"),
        ('SHELL ["/bin/zsh", "-c"]', "boxes have bash"),
        ("FROBNICATE x", "unknown instruction"),
        ("COPY a /etc/a", "not under a writable directory"),
        ("COPY a /usr/local/bin/", "not under a writable directory"),
        ("COPY --chown=1:1 a /app/", "COPY --chown=1:1: boxes cannot honour it"),
        ("COPY --from=build a /app/", "COPY --from=build: boxes cannot honour it"),
        ("COPY a", "needs a source and a target"),
        ("RUN [true]", "not a list of texts"),
        ("RUN cat <<EOF", "here-documents"),
        ("WORKDIR /app/../etc", "not under a writable directory"),
    ],
)
def test_what_a_box_cannot_honour_is_refused_with_the_reason(line, reason):
    with pytest.raises(ValueError, match=reason):
        read_recipe(f"FROM x\n{line}\n", workdir="/app")


def test_a_recipe_keeps_the_directory_and_environment_of_each_step():
    recipe = read_recipe(
        "ENV A 1\nWORKDIR sub\nRUN one\nENV A=2 B=${A}\nCOPY x y /app/z/\nRUN two\n", workdir="/app"
    )
    assert recipe.steps == (
        Run("one", "/app/sub", {"A": "1"}),
        Copy(("x", "y"), "/app/z", True),
        Run("two", "/app/sub", {"A": "2", "B": "1"}),
    )
    assert (recipe.workdir, recipe.directories) == ("/app/sub", ("/app",))


def test_a_failing_run_and_a_missing_source_name_the_step(tmp_path):
    failing = environment(tmp_path / "a", "RUN echo why >&2; exit 3\n")
    missing = environment(tmp_path / "b", "COPY nothing.txt /app/\n")
    outside = environment(tmp_path / "c", "COPY ../a/Dockerfile /app/\n")

    async def run(sandbox):
        with pytest.raises(ValueError, match="RUN echo why >&2; exit 3 ended with 3: why"):
            await sandbox.open(spec(environment_dir=failing))
        for directory in (missing, outside):
            with pytest.raises(ValueError, match="no such file in the environment directory"):
                await sandbox.open(spec(environment_dir=directory))
        assert [entry.name for entry in sandbox.state_path.iterdir()] == ["etc"]

    in_sandbox(run)


def test_files_go_in_and_come_out_byte_for_byte(tmp_path):
    content = os.urandom(300_000)
    (tmp_path / "in.bin").write_bytes(content)

    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.put(tmp_path / "in.bin", "/app/a dir/it's $HOME.bin")
        await box.get("/app/a dir/it's $HOME.bin", tmp_path / "out.bin")
        with pytest.raises(ValueError, match="cannot read /app/nothing"):
            await box.get("/app/nothing", tmp_path / "x")

    in_sandbox(run)
    assert (tmp_path / "out.bin").read_bytes() == content


def test_a_link_in_the_box_does_not_lead_a_copy_out_of_it(tmp_path):
    host = tmp_path / "host.txt"
    host.write_text("host")
    host.chmod(0o666)
    (tmp_path / "new.txt").write_text("new")

    async def run(sandbox):
        box = await sandbox.open(spec())
        await box.exec(f"ln -s {host} /app/link; ln -s / /app/root", timeout_s=10)
        with pytest.raises(ValueError, match="cannot write"):
            await box.put(tmp_path / "new.txt", "/app/link")
        with pytest.raises(ValueError, match="cannot read"):
            await box.get("/app/link", tmp_path / "got.txt")

    in_sandbox(run)
    assert host.read_text() == "host"


def test_long_commands_and_long_answers_cross_whole():
    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec("printf %s " + "x" * 100_000, timeout_s=20)
        assert len(done.stdout) == 100_000
        done = await box.exec("head -c 3000000 /dev/zero; echo err >&2; exit 7", timeout_s=20)
        assert (done.rc, len(done.stdout), done.stderr) == (7, 3_000_000, b"err\n")

    in_sandbox(run)


def test_a_timed_out_command_is_killed_and_its_output_kept():
    async def run(sandbox):
        box = await sandbox.open(spec())
        done = await box.exec("echo begun; sleep 47.5", timeout_s=0.5)
        assert (done.timed_out, done.stdout, done.rc) == (True, b"begun\n", -9)
        left = await box.exec("pgrep -fx 'sleep 47.5' | wc -l", timeout_s=10)
        assert left.stdout.strip() == b"0"

    in_sandbox(run)
