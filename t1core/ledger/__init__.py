"""What the sources claim, number by number, and what stands beside each here: measured, computed, or nothing.

`figures/quoted/*.csv` holds the claims in our own words; `t1 ledger` writes docs/LEDGER.md from them, from the code
that computes a number, and from kept results.
"""

from t1core.ledger.quoted import Quoted, read_quoted

__all__ = ["Quoted", "read_quoted"]
