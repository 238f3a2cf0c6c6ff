"""ffdl: deep-learning training jobs as Argo Workflows. What a user imports; everything is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engines.archive import pack_code as pack
    from .engines.catalogue import read_catalogue as read_catalogue
    from .engines.client import Client as Client
    from .workflows.job import TrainingJob as TrainingJob

__all__ = ["Client", "TrainingJob", "learner", "pack", "read_catalogue"]
_WHERE = {
    "TrainingJob": ("ffdl.workflows.job", "TrainingJob"),
    "Client": ("ffdl.engines.client", "Client"),
    "pack": ("ffdl.engines.archive", "pack_code"),
    "read_catalogue": ("ffdl.engines.catalogue", "read_catalogue"),
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "learner":
        return importlib.import_module("ffdl.learner")
    if name in _WHERE:
        module, attribute = _WHERE[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'ffdl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
