"""What waiting for the slowest of a group costs, worked by hand."""

from t1core.controller.measure import group_waiting


def test_finished_trials_wait_for_the_slowest_of_their_own_group():
    """4 and 10 s after 0 and 1: the first waits 6 s; both at 5, from 2: neither waits."""
    slow, even = [(0.0, 4.0), (1.0, 10.0)], [(2.0, 5.0), (2.0, 5.0)]
    assert group_waiting([slow]) == (6.0, 13.0)
    assert group_waiting([slow, even]) == (6.0, 19.0)
    assert group_waiting([[(0.0, 10.0)], [(0.0, 1.0)]]) == (0.0, 11.0)
