"""Stand-in for sgl_kernel: importable on a CPU without AMX; kernels without a plain-torch body raise.

On a CPU with AMX SGLang would call real kernels through these names, so the launcher refuses such machines.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0"
_REAL = ("gated_delta", "gated_attention", "mamba", "patches", "scalar_type")


class _Missing:
    """A kernel nobody should call here."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            f"{self.__name__}: no CPU stand-in; this model or flag needs a compiled sgl_kernel"
        )


def _attributes_of(module_name: str):
    def __getattr__(name: str):
        if name.startswith("__") or (module_name == "sgl_kernel" and name in _REAL):
            raise AttributeError(name)
        return _Missing(f"{module_name}.{name}")

    return __getattr__


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`sgl_kernel.x` for every x that has no file here."""

    def find_spec(self, fullname, path, target=None):
        if fullname.startswith("sgl_kernel.") and fullname.split(".")[1] not in _REAL:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = _attributes_of(spec.name)
        return module

    def exec_module(self, module):
        pass


if __name__ == "sgl_kernel":  # not when this file is imported as a part of t1core
    __getattr__ = _attributes_of("sgl_kernel")
    sys.meta_path.append(_Submodules())
    importlib.import_module("sgl_kernel.patches").install()
    importlib.import_module("sgl_kernel.gated_delta").register()
    importlib.import_module("sgl_kernel.gated_attention").register()
