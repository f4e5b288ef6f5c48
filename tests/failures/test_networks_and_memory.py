"""The mechanisms of the cases that are about networks, memory and what a rank waits for."""

import numpy as np
import pytest

from t1core.failures import better_critic, os_killer, shared_directory, slow_peer
from t1core.failures.compiling import reading


def test_a_critic_saved_without_a_place_of_its_own_takes_the_actors(tmp_path):
    networks = shared_directory.made_up_networks(seed=0)
    shared_directory.save_both(networks, actor=tmp_path / "one", critic=None)
    assert sorted(shared_directory.read_back(tmp_path / "one")) == sorted(networks["critic"])
    shared_directory.save_both(networks, actor=tmp_path / "a", critic=tmp_path / "c")
    for role, directory in (("actor", "a"), ("critic", "c")):
        found = shared_directory.read_back(tmp_path / directory)
        assert all((found[name] == array).all() for name, array in networks[role].items())


def test_refusals_are_those_of_the_spellings_that_are_refused():
    def check(spelling):
        if spelling != "fine":
            raise ValueError(f"several lines\n  {spelling} is refused")

    assert shared_directory.refusals(check, ["a", "fine", "b"]) == ["a is refused", "b is refused"]


def test_a_process_beyond_what_is_left_to_it_ends_without_a_word():
    killed = os_killer.grow(need_mib=80, limit_mib=30)
    assert (killed.code, killed.stdout, killed.stderr) == (-9, "", "")
    lives = os_killer.grow(need_mib=10, limit_mib=60)
    assert (lives.code, lives.stdout) == (0, "done\n")


@pytest.mark.parametrize(
    ("seconds", "waiting_s", "says"),
    [
        ([489, 301, 188, 80, 39, 22], 0, "compiling"),  # 395 in the first third, 30.5 in the last
        ([100, 100, 60, 40, 21, 21], 0, "steady"),
        ([100, 100, 60, 40, 20, 20], 0, "compiling"),
        ([22, 23, 21, 22, 22, 23], 230, "steady"),
        ([22, 23, 21, 22, 22, 23], 231, "hanging"),
    ],
)
def test_a_time_that_falls_is_a_compiler_and_one_without_end_a_hang(seconds, waiting_s, says):
    assert reading(seconds, waiting_s=waiting_s) == says


def test_explained_variance_follows_the_critic_and_reward_does_not():
    how = dict(steps=12, batch=512, lr=1.0, seed=0)
    blind, knowing = (better_critic.train(better_critic.Critic(*c), **how) for c in ((0, 0.95), (1, 0)))
    assert blind["ev"].mean() < -20 and 0.6 < knowing["ev"].mean() < 0.85
    assert abs(blind["reward"].mean() - knowing["reward"].mean()) < 0.005


def test_critics_of_any_quality_point_the_policy_the_same_way():
    """At the start every way is as likely; the gradient of way w of kind k is (m_kw - mean m_k) / 4 / 3 / 20."""
    means = better_critic.MEAN_TESTS.numpy()
    exact = ((means - means.mean(1, keepdims=True)) / 4 / len(means) / 20).flatten()
    for critic in (better_critic.Critic(1, 0), better_critic.Critic(0, 0)):
        mean, deviation = better_critic.mean_gradient(critic, batches=600, batch=256, seed=2)
        assert (np.abs(mean - exact) < 4.5 * deviation / np.sqrt(600)).all()


@pytest.mark.slow
def test_a_peer_that_is_late_is_taken_for_a_broken_one_under_a_short_timeout():
    crashed = slow_peer.wait_for_a_late_peer(late_s=2.0, timeout_s=0.5)
    assert "Timed out waiting 500ms" in crashed.error and 0.5 <= crashed.seconds < 2.0
    assert slow_peer.wait_for_a_late_peer(late_s=1.0, timeout_s=60.0).error == ""


@pytest.mark.slow
def test_a_cap_below_the_longest_row_leaves_the_peak_where_it_is():
    from t1core.failures.token_cap import peaks_by_cap

    found = peaks_by_cap([900, 100, 100, 100], caps=[400, 200])
    assert found["largest"].tolist() == [900, 900]
    assert found["peak_mib"].max() / found["peak_mib"].min() < 1.02
    assert peaks_by_cap([400, 100], caps=[400])["peak_mib"].iloc[0] < 0.8 * found["peak_mib"].min()
