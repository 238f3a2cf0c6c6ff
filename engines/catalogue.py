"""The catalogue of frameworks as this machine has it: ffdl's own, and the file that a site keeps beside it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .base import EngineError

if TYPE_CHECKING:
    from ..workflows.catalogue import Catalogue

CATALOGUE_ENV = "FFDL_CATALOGUE"
MOST = 1 << 20  # bytes read: more than is accepted


class NoCatalogue(EngineError):  # noqa: N818 (reads as the sentence it is)
    """The site's file can't be read."""

    exit_code = 2


def read_catalogue(file: str | os.PathLike[str] | None = None) -> Catalogue:
    """ffdl's frameworks with those of `file` (default: $FFDL_CATALOGUE, if set). Raises EngineError, ManifestError."""
    from ..workflows.catalogue import shipped

    path = os.path.expanduser(file or os.environ.get(CATALOGUE_ENV, ""))
    if not path:
        return shipped()
    try:
        with open(path, "rb") as stream:
            data = stream.read(MOST)
    except OSError as error:
        why = f"{os.fsdecode(path)}: {error.strerror}"
        raise NoCatalogue(f"{why}; {CATALOGUE_ENV} or `catalogue` of config.yml names it") from None
    return shipped().extended(data, os.fsdecode(path))
