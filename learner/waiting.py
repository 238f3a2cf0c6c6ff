"""Why a pod does not start, in its cluster's own words, and whether waiting can cure it. Pure, standard library only.

Judged by these words because nothing else tells a user, a helper or a sweep the difference: a learner that asks for 9
GPUs where nodes have 8 is Pending for the same reason, "Unschedulable", as one that waits for its turn.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Mapping

STARTING = "starting"  # nothing is wrong so far
ROOM = "room"  # it starts once others have left or a node has come back
STUCK = "stuck"  # it won't start however long one waits

_ON_ITS_WAY = ("", "PodInitializing", "ContainerCreating", "Pending")
_PASSING = ("failed to sync", "not registered", "timed out waiting for the condition")  # a busy node's caches
_QUOTA = re.compile(r"exceeded quota: .*?requested: (\S+), used: \S+, limited: (\S+)")
_UNSCHEDULABLE = re.compile(r"\d+/\d+ nodes are available: (.*)")
_REASON_OF_NODES = re.compile(r"\d+ ((?:Insufficient|Too many|node\(s\)) ?[^,]*)")
_COMES_BACK = re.compile(r"were unschedulable|taint \{node\.kubernetes\.io/")
_REFUSED = re.compile(r'^[Pp]ods? "[^"]*" is (forbidden|invalid): ')
_NEVER_RAN = re.compile(r"^(?:init|agent): \S+ \(exit code \d+\)|^\S+: (?:StartError|ContainerCannotRun) ")
_SUFFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES.update({f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)})
_NO_NEWS = ("FailedScheduling", "NotTriggerScaleUp", "TriggeredScaleUp")  # the pod's own condition says it better


def judge(message: str) -> str:
    """STARTING, ROOM or STUCK, for the message of a pod that has not started (a pending node's, or `pod_message`)."""
    text = " ".join(message.split())
    if text in _ON_ITS_WAY or any(words in text for words in _PASSING):
        return STARTING
    quota = _QUOTA.search(text)
    if quota:
        asked, most = _amounts(quota[1]), _amounts(quota[2])
        return STUCK if any(amount > most.get(name, amount) for name, amount in asked.items()) else ROOM
    unschedulable = _UNSCHEDULABLE.search(text)
    if unschedulable:
        return _judge_scheduling(unschedulable[1])
    waits = ("queued", "status unknown for quota", "no nodes available to schedule", "SchedulingGated")
    return ROOM if any(words in text for words in waits) else STUCK


def _judge_scheduling(text: str) -> str:
    """What the scheduler says of all nodes together.

    It looks for pods to preempt only where that could make room, and says "not helpful" of a node that would not do
    even if it were empty. A node that is cordoned or not ready is such a one, too, but comes back.
    """
    reasons, _, preemption = text.partition("preemption: ")
    if "PersistentVolumeClaim" in reasons or "persistentvolumeclaim" in reasons:
        return STUCK
    if "not helpful" not in preemption or "No preemption victims" in preemption:
        return ROOM
    kinds = _REASON_OF_NODES.findall(reasons)
    if any(_COMES_BACK.search(kind) for kind in kinds):
        return ROOM
    # newer schedulers leave out which taint it is: a cluster's control plane has one, and a node that is not ready
    return ROOM if all("taint" in kind for kind in kinds) else STUCK


def never_began(message: str) -> bool:
    """Whether an attempt with this message ended before its command began, in a way in which the next one will, too."""
    text = " ".join(message.split())
    if _NEVER_RAN.match(text):
        return True
    return _REFUSED.match(text) is not None and judge(text) == STUCK


def pod_message(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = ()) -> str:
    """Why `pod` has not started, as `Reason: message`; "" if it has, or if nothing is said.

    `events` may be of many pods. They alone tell of volumes that can't be mounted.
    """
    status = pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(condition)
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason", "") not in _ON_ITS_WAY:
                return _words(waiting)
    return _newest_warning(pod, events)


def _newest_warning(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """The newest event, if it is a warning: an older one has been overcome."""
    uid = (pod.get("metadata") or {}).get("uid")
    mine = [
        event
        for event in events
        if (event.get("involvedObject") or {}).get("uid") == uid and event.get("reason") not in _NO_NEWS
    ]
    if uid is None or not mine:
        return ""
    newest = max(mine, key=lambda event: (_time(event), event.get("type") == "Warning"))
    return _words(newest) if newest.get("type") == "Warning" else ""


def _time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return max(str(time or "")[:19] for time in times)


def _words(said: Mapping[str, Any]) -> str:
    parts = (str(said.get("reason") or ""), " ".join(str(said.get("message") or "").split()))
    return ": ".join(part for part in parts if part)


def _amounts(text: str) -> Dict[str, float]:
    """`requests.cpu=1500m,pods=3` -> numbers; what is none is left out."""
    found = {}
    for piece in text.split(","):
        name, _, amount = piece.partition("=")
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]{0,2})", amount)
        if match and (not match[2] or match[2] in _SUFFIXES):
            found[name] = float(match[1]) * _SUFFIXES.get(match[2], 1.0)
    return found
