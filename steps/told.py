"""What programs in a pod are told of the world that its member is in."""

from __future__ import annotations

from ..learner import contract
from .channel import Message
from .identity import Identity
from .program import no_worlds

_WORLD = ("generation", "rank", "size", "addresses", "servers", "mode", "key", "step", "common", "done", "first")


def whole(world: Message) -> Message:
    """The world as it is."""
    return {"type": contract.WORLD, **{name: world.get(name) for name in _WORLD}}


def place(identity: Identity, world: Message, epoch: int, follows: bool) -> Message:
    """What a session is told. Each learner is a world of its own, unless the library brings them together.

    One that does not follow the worlds uses a framework's own collectives, and often one learner saves for all: each is
    told no step, and goes on from its own last one. Unless there are servers of ours, which go back with the learners.
    """
    alone = not identity.together or no_worlds(identity.spec)
    keep = identity.spec.checkpoint_keep
    told = {"rank": 0, "size": 1} if alone else whole(world)
    if not follows and not world.get("servers"):
        told |= {"step": None, "common": None}
    return {
        **told,
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
