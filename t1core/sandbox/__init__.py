"""Boxes where trials happen: one contract (`sandbox.py`), its kinds beside it, and the runtime they share."""
