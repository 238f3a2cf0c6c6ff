"""What programs in a pod are told of the world that its member is in."""

from __future__ import annotations

from ..learner import contract
from .channel import Message
from .identity import Identity
from .program import no_worlds

_WORLD = ("generation", "rank", "size", "addresses", "servers", "mode", "key", "step", "common")


def whole(world: Message) -> Message:
    """The world as it is."""
    return {"type": contract.WORLD, **{name: world.get(name) for name in _WORLD}}


def place(identity: Identity, world: Message, epoch: int) -> Message:
    """What a session is told. Each learner is a world of its own, unless the library brings them together."""
    alone = not identity.together or no_worlds(identity.spec)
    keep = identity.spec.checkpoint_keep
    return {
        **({"rank": 0, "size": 1} if alone else whole(world)),
        "type": contract.WORLD,
        "generation": world.get("generation", 0),
        "checkpoint_dir": identity.checkpoint_dir,
        "interval": identity.spec.checkpoint_interval,
        "steps": identity.spec.checkpoint_steps,
        # where one has saved the next step, and another has not yet, the one before is what all have
        "keep": max(2, keep) if identity.together else keep,
        "epoch": epoch,
        "learners": identity.spec.learners,
        "index": identity.index,
    }
