"""Which pods reach which, with argo-config's policies and something that enforces them."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from tests.behaviours.cluster_user import ClusterUser
from tests.behaviours.tenant import Tenant

SETTLED = 30.0  # seconds that rules may take to reach a node
SERVER = "import http.server as h; h.ThreadingHTTPServer(('', 8099), h.SimpleHTTPRequestHandler).serve_forever()"
CLIENT = """
import socket, sys, time
host, port, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "reached"
until, reached = time.monotonic() + {settled}, None
while reached != wanted and time.monotonic() < until:
    try:
        socket.create_connection((host, port), 2).close()
        reached = True
    except OSError:
        reached = False
    time.sleep(0.5)
print("reached" if reached else "refused")
""".replace("{settled}", str(SETTLED))


def pod(tenant: Tenant, name: str, image: str, *command: str) -> None:
    container = {"name": "main", "image": image, "command": ["python3", "-c", *command]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    tenant.api.create("pods", body)


def status(tenant: Tenant, name: str, phases: tuple[str, ...]) -> dict[str, Any]:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found: dict[str, Any] = tenant.api.get("pods", name)["status"]
        if found.get("phase") in phases:
            return found
        time.sleep(0.25)
    raise AssertionError(f"{name} is not {phases}: {json.dumps(found)}")


def outcome(tenant: Tenant, name: str, image: str, host: str, port: int, wanted: str) -> str:
    """What a pod there says that it can do, once that is `wanted`, or after SETTLED."""
    pod(tenant, name, image, CLIENT, host, str(port), wanted)
    status(tenant, name, ("Succeeded", "Failed"))
    said: str = tenant.api.call("GET", f"{tenant.api.path('pods', name)}/log")
    tenant.api.delete("pods", name, grace=0)
    return said.strip()


def test_tenants_do_not_reach_each_other(user: ClusterUser, neighbours: Tenant) -> None:
    """Learners talk to each other without passwords, as the frameworks do: others must not get to them at all."""
    pod(user.tenant, "server", user.image, SERVER)
    try:
        address = status(user.tenant, "server", ("Running",))["podIP"]
        assert outcome(user.tenant, "friend", user.image, address, 8099, "reached") == "reached"
        assert outcome(neighbours, "stranger", user.image, address, 8099, "refused") == "refused"
    finally:
        user.api.delete("pods", "server", grace=0)


def test_the_way_out_is_a_setting(neighbours: Tenant, neighbour: ClusterUser) -> None:
    """Stores and package indexes are reached, and not with the option `closed`; names and the API server are."""
    host, _, port = neighbours.cluster.place.s3.rpartition("//")[2].partition(":")
    policies = "apis/networking.k8s.io/v1/namespaces"
    neighbours.api.call("DELETE", f"{policies}/{neighbours.namespace}/networkpolicies/to-the-tests")
    index = (neighbours.this_machine, 6443)  # outside, on a port that the API server has
    with socket.create_server(index):
        assert outcome(neighbours, "store", neighbour.image, host, int(port), "reached") == "reached"
        assert outcome(neighbours, "index", neighbour.image, *index, "reached") == "reached"
        neighbours.cluster.tenant(neighbours.namespace, "closed")
        assert outcome(neighbours, "shut", neighbour.image, host, int(port), "refused") == "refused"
        assert outcome(neighbours, "no-index", neighbour.image, *index, "refused") == "refused"
    assert outcome(neighbours, "names", neighbour.image, "kubernetes.default.svc", 443, "reached") == "reached"
