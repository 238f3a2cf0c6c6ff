"""`${NAME}` in a manifest's values: taken from the environment of whoever submits the job."""

from __future__ import annotations

import re

from .errors import shown
from .yaml_lines import Scalar, text

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def references(value: str) -> list[str]:
    """The names that `value` takes from the submitter's environment, in order, each once."""
    return list(dict.fromkeys(REFERENCE.findall(value)))


def referring(node: Scalar) -> str:
    """Text whose every `${` is a reference. Raises ValueError."""
    value = text(node)
    if "${" in REFERENCE.sub("", node.text):
        raise ValueError(
            "holds a '${' that is not ${NAME}; write ${NAME}, and set NAME in your environment to the whole text"
        )
    return value


def credential(node: Scalar) -> str:
    """As `referring`; a credential is never shown in a message."""
    if not node.text.strip():
        raise ValueError(f"is {shown('')}; write it, write ${{NAME}}, or remove the key")
    return referring(node)
