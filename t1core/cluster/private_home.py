"""A home directory for Ray's own processes, so that they ask nobody outside where they run.

Ray's head asks the metadata services of three clouds as it starts, whatever its usage statistics setting says, unless
its home holds the file of a cluster launcher (`ray/dashboard/modules/usage_stats/usage_stats_head.py`, Ray 2.60.0). Its
token, which Ray would write into the user's home, lies here too and goes with the session.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextlib.contextmanager
def private_home() -> Iterator[Path]:
    """A directory to be Ray's home while it starts; the token in it serves this process until the block ends.

    A token of the user's own, named by Ray's variables, is left as it is.
    """
    with tempfile.TemporaryDirectory(prefix="t1-ray-home-") as name, contextlib.ExitStack() as stack:
        home = Path(name)
        (home / "ray_bootstrap_config.yaml").write_text("{}\n")
        if not any(os.environ.get(variable) for variable in TOKEN_VARIABLES):
            token = home / "auth_token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            stack.enter_context(environment(RAY_AUTH_TOKEN_PATH=str(token)))
        yield home


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables for the block, then put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
