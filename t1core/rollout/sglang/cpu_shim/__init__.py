"""A directory for the PYTHONPATH of a real SGLang server on a CPU without AMX: stand-ins for two packages.

SGLang on such a CPU takes its plain-torch path almost everywhere, but imports `sgl_kernel` (published for
CUDA only) and `torchvision` (does not load beside a CPU torch) on the way. The stand-ins make the imports
succeed, refuse to be called where nothing real stands behind them, and supply in plain torch the few
functions that a GatedDeltaNet + MoE model does call. SGLang's scheduling, caching, sampling and loading are
its own.

Runs under SGLang's own Python (3.11), which does not have this package: nothing in here imports t1core.
"""
