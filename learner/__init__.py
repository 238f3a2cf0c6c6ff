"""What a training script may import: the standard library and NumPy, Python >= 3.9. Imports no other room.

from ffdl import learner

with learner.session() as job:
    state = job.restore() or initial_state()
    ...
"""

from .errors import PeerLost
from .session import Halted, Session, run, session

__all__ = ["Halted", "PeerLost", "Session", "run", "session"]
