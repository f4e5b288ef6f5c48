"""Routing fidelity: the experts each token went through, kept in one canonical and compact form. numpy only."""

from t1core.routing.record import canonical, compact, route_dtype, validate
from t1core.routing.stitch import MissingRoutes, RoutePiece, stitch

__all__ = ["MissingRoutes", "RoutePiece", "canonical", "compact", "route_dtype", "stitch", "validate"]
