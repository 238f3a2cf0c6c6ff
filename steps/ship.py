"""`python -m ffdl.steps.ship [--checkpoints] [--logs] [--final]`: takes to the results store what is new, and ends.

A program of its own, so that the helper, which runs it now and then, does not hold a store's client. Exit code 0: all
is there; 70: not all, with the reason as the last line on standard error; 75: asked to stop.
"""

from __future__ import annotations

import sys

from ..learner import contract
from . import step
from .program import in_step
from .retrying import Patience, Stop
from .shipping import Shipment, forbid_missing, ship_checkpoints, ship_logs
from .storage import credentials, open_store, retry_seconds
from .transfer import Memory, Outcome

SHIPPED_FILE = "shipped.json"  # in JOURNAL_DIR
RETRY_SECONDS = 20.0  # the helper tries again by itself


def memory() -> Memory:
    return Memory(contract.path(f"{contract.JOURNAL_DIR}/{SHIPPED_FILE}"))


def ship(checkpoints: bool, logs: bool, final: bool, stop: Stop) -> None:
    """Raises StoreError for what could not be stored."""
    job = step.Job.load()
    if job.spec.results is None:
        step.say("the manifest asks for no results to be stored")
        return
    objects = open_store(job.spec.results, credentials(), "results")
    patience = Patience(retry_seconds(RETRY_SECONDS), stop.wait, step.say)
    shipment = Shipment(objects, job.id, memory(), patience, stop, step.say)
    outcome = Outcome()
    if checkpoints or final:
        outcome.missing |= ship_checkpoints(shipment, job.spec.checkpoint_keep, final, in_step(job.spec)).missing
    if logs or final:
        outcome.missing |= ship_logs(shipment).missing
    forbid_missing(outcome, objects)


def main() -> None:
    known = {"--checkpoints", "--logs", "--final"}
    asked = set(sys.argv[1:])
    if not asked or asked - known:
        step.complain(f"usage: python -m ffdl.steps.ship {' '.join(f'[{name}]' for name in sorted(known))}")
        raise SystemExit(2)
    step.run("ship", lambda stop: ship("--checkpoints" in asked, "--logs" in asked, "--final" in asked, stop))


if __name__ == "__main__":
    main()
