"""Pictures of a Workflow: what runs in what and after what, as text, SVG or Graphviz' DOT. Pure; imports no engine."""

from .build import drawing
from .model import Box, Edge

__all__ = ["Box", "Edge", "drawing"]
