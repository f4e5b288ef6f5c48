"""Where the end of a campaign is filed."""

import pytest

from t1core.campaign.campaign import boundary_of
from t1core.cluster import PartDied, PartSilent
from t1core.records import Boundary
from t1core.rollout.engine import EngineDead
from t1core.routing import MissingRoutes


@pytest.mark.parametrize(
    ("error", "boundary"),
    [
        (PartDied("engine 0 died", boundary=Boundary.ENGINE), Boundary.ENGINE),
        (PartSilent("trial host 0 is silent", boundary=Boundary.SANDBOX), Boundary.SANDBOX),
        (PartDied("trainer rank 0 died"), Boundary.OURS),
        (MissingRoutes("short rows"), Boundary.ENGINE),
        (EngineDead("gone"), Boundary.ENGINE),
        (AssertionError("a bug"), Boundary.OURS),
    ],
)
def test_what_ended_a_campaign_is_filed_where_it_broke(error, boundary):
    assert boundary_of(error) is boundary
