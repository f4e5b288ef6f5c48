"""Where prepared things lie: the paths that a campaign starts from."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Assets:
    """Paths of what was prepared. `critic` None: the critic starts cold."""

    pool: Path
    actor: Path
    critic: Path | None


def cache_root() -> Path:
    """Where prepared things are kept."""
    return Path(os.environ.get("T1CORE_HOME") or ".t1core").resolve()
