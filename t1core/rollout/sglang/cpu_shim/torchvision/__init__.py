"""Stand-in for torchvision: importable, every attribute an empty class. A text-only server uses none."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.0.0"


class _Name(type):
    """Class attributes become strings, so that enum-like look-ups at import time succeed."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Name(name, (), {})


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every `torchvision.x.y` is another empty module with the same `__getattr__`."""

    def find_spec(self, fullname, path, target=None):
        if fullname.startswith("torchvision."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = __getattr__
        return module

    def exec_module(self, module):
        pass


if __name__ == "torchvision":  # not when this file is imported as a part of t1core
    sys.meta_path.append(_Submodules())
