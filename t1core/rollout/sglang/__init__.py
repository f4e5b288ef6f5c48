"""The `sglang` engine kind: a client of a real SGLang server, which runs in an environment of its own.

The client speaks to SGLang 0.5.17 to 0.5.23 (`version.py`), on CUDA as installed and on a CPU behind
`cpu_shim`. It trusts no reply: rows are counted, ids checked, and a request that met stale state is asked
again.
"""

from t1core.rollout.sglang.engine import SGLangEngine

__all__ = ["SGLangEngine"]
