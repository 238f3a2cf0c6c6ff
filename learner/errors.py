"""What can go wrong among learners that train together."""

from __future__ import annotations


class PeerLost(ConnectionError):  # noqa: N818 (reads as the sentence it is)
    """Another learner of the world is gone: this world is over."""


class Mismatch(RuntimeError):  # noqa: N818 (reads as the sentence it is)
    """The learners of a world did not call the same collectives with the same shapes in the same order."""
