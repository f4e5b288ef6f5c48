"""A campaign over two Ray nodes: its trial hosts live on different ones, each under its cap, and a node that is lost
is known by the parts that it held."""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from running_campaign import RunningCampaign

OVERRIDES = (
    "cluster.num_hosts=2", "cluster.num_cpus=2", "rollout.max_live_trials=2", "rollout.rollout_batch_size=4",
    "rollout.over_sampling_batch_size=4", "cluster.probe_period_s=1.0",
)  # fmt: skip


@contextlib.contextmanager
def two_nodes(directory, monkeypatch):
    """(address, process ids of the two raylets). Whoever joins finds the token in its environment."""
    home = directory / "ray-home"
    home.mkdir()
    (home / "ray_bootstrap_config.yaml").write_text("{}\n")  # asks no cloud where it runs
    token = home / "auth_token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    program = Path(__file__).with_name("two_nodes.py")
    with tempfile.TemporaryDirectory(prefix="t1-ray-") as own, (directory / "nodes.txt").open("w") as said:
        nodes = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
            env=os.environ | {"HOME": str(home), "RAY_TMPDIR": own}, start_new_session=True,
        )  # fmt: skip
        try:
            line = nodes.stdout.readline()
            assert line, (directory / "nodes.txt").read_text()[-2000:]
            told = json.loads(line)
            yield told["address"], told["raylets"]
        finally:
            family = psutil.Process(nodes.pid).children(recursive=True)
            nodes.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                nodes.wait(60)
            _, alive = psutil.wait_procs(family, timeout=10)
            for process in [*alive, nodes]:
                process.kill()
            nodes.wait()


def parts_of(raylet):
    """The campaign's processes on a node, by their actor's class."""
    found = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(raylet).children():
            with contextlib.suppress(psutil.Error, IndexError):
                title = process.cmdline()[0]
                if title.startswith("ray::") and "Actor" in title:
                    found.setdefault(title.removeprefix("ray::").partition(".")[0], []).append(process)
    return found


def num_boxes(host):
    """Boxes of a trial host: the outermost process of each."""
    with contextlib.suppress(psutil.Error):
        return sum(child.name() == "bwrap" for child in host.children())
    return 0


@pytest.mark.slow
def test_hosts_are_pinned_and_capped_and_a_lost_node_ends_the_campaign_by_name(
    tmp_path, checkpoint, monkeypatch
):
    with two_nodes(tmp_path, monkeypatch) as (address, raylets):
        directory = tmp_path / "campaign"
        directory.mkdir()
        overrides = (*OVERRIDES, f"cluster.address={address}")
        with RunningCampaign(directory, actor_path=checkpoint, overrides=overrides) as campaign:
            hosts, most, deadline = {}, {}, time.monotonic() + 300
            while campaign.status()["step"] < 0 or len(most) < 2 or not all(most.values()):
                assert campaign.driver.poll() is None and time.monotonic() < deadline, campaign.said()
                for raylet in raylets:
                    for host in parts_of(raylet).get("HostActor", []):
                        hosts[host.pid] = raylet
                        most[host.pid] = max(most.get(host.pid, 0), num_boxes(host))
                time.sleep(0.05)
            assert sorted(hosts.values()) == sorted(raylets), "one host on each node"
            assert max(most.values()) <= 2, "a host had more boxes than its cap"
            assert campaign.status()["state"] == "running"
            lost = parts_of(raylets[1])
            psutil.Process(raylets[1]).kill()
            campaign.until_ended(within_s=180)
            assert campaign.driver.returncode == 1
            status = campaign.status()
            names = {"HostActor": "trial host", "EngineActor": "engine 0", "TrainerActor": "trainer rank 0"}
            assert status["state"] == "failed" and "PartDied: " in status["error"]
            assert any(f"{names[kind]}" in status["error"] for kind in lost), (status["error"], list(lost))
            _, alive = psutil.wait_procs([one for kind in lost.values() for one in kind], timeout=30)
            assert alive == [], "parts outlive their node"
            assert parts_of(raylets[0]) == {}, "parts are left on the other node"
            assert list(campaign.box_root.glob("block-*/*")) == [], "boxes are left"
            print(status["error"])
