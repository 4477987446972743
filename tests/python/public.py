# SPDX-License-Identifier: Apache-2.0
"""What the package promises to programs: the names in __all__ of its public modules, and what these classes have."""
import enum
import importlib
import inspect

MODULES = ("gpumem", "gpumem.weights", "gpumem.torch", "gpumem.cupy", "gpumem.numba", "gpumem.rmm")


def modules():
    return [importlib.import_module(name) for name in MODULES]


def members(cls):
    """The public names of a class that are this package's, not Python's own."""
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        if not name.startswith("_") and owner.__module__.split(".")[0] == "gpumem" and not issubclass(cls, BaseException):
            yield name


def is_record(cls):
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def things():
    """Everything public, as (where it is, name, the thing)."""
    for module in modules():
        for name in module.__all__:
            thing = getattr(module, name)
            yield module.__name__, name, thing
            if inspect.isclass(thing) and not issubclass(thing, enum.Enum):
                for member in members(thing):
                    yield "%s.%s" % (module.__name__, name), member, inspect.getattr_static(thing, member)
