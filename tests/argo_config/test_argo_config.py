"""argo-config/ as kustomize renders it: what a tenant gets, and that nobody gets more than that."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from ffdl.engines.argo import controller_check, packaged
from ffdl.workflows.site import CONFIG_NAME, CONFIG_VERSION, Site
from tests.cluster.place import Place

CONFIG = Path(__file__).parents[2] / "argo-config"
CLUSTER_TOOLS = str(Place.default().tools)
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl") or shutil.which("kubectl", path=CLUSTER_TOOLS)
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="needs kubectl: python -m tests.cluster up has one")
Object = dict[str, Any]
SHARED = {"ipBlock": {"cidr": "100.64.0.0/10"}}  # neither private nor public, says Python
SECRET_READERS = {"ffdl-user"}  # the namespace is the border: its users may use its Secrets


def rendered(folder: Path) -> list[Object]:
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def by_name(objects: list[Object]) -> dict[str, Object]:
    return {f"{found['kind']}/{found['metadata']['name']}": found for found in objects}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIG, tmp_path / "argo-config"))


def overlay(copy: Path, name: str, *components: str, more: Sequence[str] = ()) -> list[Object]:
    """A tenant as its administrator writes it down; `more` are lines of theirs."""
    lines = [
        "apiVersion: kustomize.config.k8s.io/v1beta1",
        "kind: Kustomization",
        f"namespace: {name}",
        "resources: [../tenant]",
        *([f"components: [{', '.join(f'../options/{option}' for option in components)}]"] if components else []),
        *more,
    ]
    (copy / name).mkdir()
    (copy / name / "kustomization.yaml").write_text("\n".join(lines))
    return rendered(copy / name)


@needs_kubectl
@pytest.mark.parametrize("name", ["tenant", "controller", "controller-3.7"])
def test_doctor_compares_with_what_kustomize_renders(name: str) -> None:
    """Doctor has no kustomize; it must not see a difference where there is none."""
    namespace = "ffdl" if name == "tenant" else "argo"
    assert by_name(packaged.objects(name, namespace)) == by_name(rendered(CONFIG / name))


@needs_kubectl
def test_a_second_tenant_is_five_lines(copy: Path) -> None:
    """Nothing of the first tenant's name may be left: its accounts would have rights in both."""
    vision = overlay(copy, "vision")
    assert by_name(vision) == by_name(packaged.objects("tenant", "vision"))
    for found in vision:
        assert found["metadata"].get("namespace") == (None if found["kind"] == "Namespace" else "vision")
        for subject in found.get("subjects", ()):
            assert subject["namespace"] == "vision"


@needs_kubectl
def test_options_can_be_combined(copy: Path) -> None:
    """What an administrator wants of a tenant is a list of names."""
    found = by_name(overlay(copy, "strict", "restricted", "closed"))
    assert found["Namespace/strict"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert Site.from_config(found[f"ConfigMap/{CONFIG_NAME}"]["data"]).learners_non_root
    assert found["NetworkPolicy/ffdl-outside"]["spec"]["egress"] == []
    assert "NetworkPolicy/ffdl-within" in found
    found = by_name(overlay(copy, "near", "host-paths"))
    assert found["Namespace/near"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def rules_out(objects: list[Object]) -> list[Object]:
    """Of all policies: what any of them allows, the others can't forbid."""
    return [rule for found in objects if found["kind"] == "NetworkPolicy" for rule in found["spec"].get("egress", ())]


def numbers(rule: Object) -> set[int]:
    return {port["port"] for port in rule["ports"]}


def goes_out(objects: list[Object], address: str, port: int) -> bool:
    """Whether a connection to an address outside the cluster is allowed."""
    to = ip_address(address)

    def within(block: Object) -> bool:
        return to in ip_network(block["cidr"]) and not any(to in ip_network(cidr) for cidr in block.get("except", ()))

    return any(
        port in numbers(rule) and ("to" not in rule or any(within(p["ipBlock"]) for p in rule["to"] if "ipBlock" in p))
        for rule in rules_out(objects)
        if "ports" in rule
    )


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.170.2", "fd00:ec2::254"])
def test_no_pod_reaches_the_nodes_credentials(address: str) -> None:
    """User code runs in these pods: with the node's role it would be an administrator of the cloud."""
    assert not goes_out(packaged.objects("tenant"), address, 80)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("203.0.113.7", 443), ("203.0.113.7", 80), ("2001:db8::7", 80), ("10.96.3.4", 9000), ("172.20.0.9", 7070),
        ("169.254.20.10", 53), ("203.0.113.7", 6443),
    ],
)  # fmt: skip
def test_stores_indexes_names_and_the_api_server_are_reached(address: str, port: int) -> None:
    """By an address outside, by that of a Service, and names by that of a node's own DNS cache."""
    assert goes_out(packaged.objects("tenant"), address, port)


def test_stores_in_the_cluster_are_reached_where_ranges_hold_no_pods() -> None:
    """Networks are free to count pods to no address range; Cilium does not."""
    (rule,) = [rule for rule in rules_out(packaged.objects("tenant")) if "ports" in rule and 9000 in numbers(rule)]
    assert {"namespaceSelector": {}} in rule["to"]


@needs_kubectl
def test_closed_leaves_names_and_the_api_server_in_private_ranges(copy: Path) -> None:
    """Package indexes and most stores listen on the API server's port: no port may be open to every address."""
    anywhere, somewhere = [], []
    for rule in rules_out(overlay(copy, "shut", "closed")):
        (somewhere if rule.get("to") else anywhere).append(rule)
    assert [numbers(rule) for rule in anywhere] == [{53}]
    within, to_ranges = sorted(somewhere, key=lambda rule: "ports" in rule)
    assert within == {"to": [{"podSelector": {}}]}
    assert numbers(to_ranges) == {443, 6443}
    assert all(ip_network(peer["ipBlock"]["cidr"]).is_private or peer == SHARED for peer in to_ranges["to"])


@needs_kubectl
def test_a_public_api_server_is_named_as_the_comment_of_closed_says(copy: Path) -> None:
    """Some clouds have no other; without it no helper of a closed tenant works."""
    text = (copy / "options/closed/kustomization.yaml").read_text()
    patches = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    found = by_name(overlay(copy, "shut", "closed", more=patches))
    names, server = found["NetworkPolicy/ffdl-cluster"]["spec"]["egress"]
    assert (numbers(names), numbers(server)) == ({53}, {443, 6443})
    assert {"ipBlock": {"cidr": "203.0.113.7/32"}} in server["to"]
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in server["to"]


@needs_kubectl
def test_the_finalizer_is_one_variable_more() -> None:
    """With and without it, all else is the same."""
    plain, capturing = (rendered(CONFIG / name)[1] for name in ("controller", "controller-capturing"))
    environment = [d["spec"]["template"]["spec"]["containers"][0]["env"] for d in (plain, capturing)]
    added = [variable for variable in environment[1] if variable not in environment[0]]
    assert added == [{"name": "ARGO_POD_STATUS_CAPTURE_FINALIZER", "value": "true"}]


def test_the_readme_names_the_controllers_settings_as_they_are() -> None:
    """What it names is what an administrator looks for, to change it or to see that it is there."""
    text = (CONFIG / "README.md").read_text()
    rows = text.partition("| setting | why |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    config, deployment = packaged.objects("controller")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    there = {f"{variable['name']}={variable['value']}" for variable in container["env"]}
    for key, value in controller_check.settings(config["data"]).items():
        there |= {f"{key}.{part}" for part in value} if key == "executor" else {key}
    assert named == there


def test_the_settings_mean_what_this_version_means() -> None:
    """The file and the program's defaults are the same thing said twice."""
    data = by_name(packaged.objects("tenant"))[f"ConfigMap/{CONFIG_NAME}"]["data"]
    assert Site.from_config(data) == Site()
    assert data["version"] == str(CONFIG_VERSION)
    for found in (*packaged.objects("tenant"), *packaged.objects("controller")):
        assert found["metadata"]["annotations"][packaged.VERSION_ANNOTATION] == str(CONFIG_VERSION)


def test_the_sweep_runs_as_the_tenants_settings_say() -> None:
    """Its image is that of every job's steps, and so is when it is pulled; a ConfigMap may leave keys out."""
    objects = by_name(packaged.objects("tenant"))
    spec = objects["CronWorkflow/ffdl-sweep"]["spec"]["workflowSpec"]
    data = objects[f"ConfigMap/{CONFIG_NAME}"]["data"]
    sources = {parameter["name"]: parameter["valueFrom"] for parameter in spec["arguments"]["parameters"]}
    assert all(source["configMapKeyRef"] == {"name": CONFIG_NAME, "key": name} for name, source in sources.items())
    assert set(sources) <= set(data)
    assert sources["pull-policy"]["default"] == Site().pull_policy
    (template,) = spec["templates"]
    used = set(re.findall(r"{{workflow\.parameters\.([\w-]+)}}", json.dumps(template)))
    assert used == set(sources)
    assert template["container"]["imagePullPolicy"] == "{{workflow.parameters.pull-policy}}"


def test_no_role_has_more_than_its_work_needs() -> None:
    """A learner's pod that is taken over has its account's rights; a helper's has the tenant's jobs and no more."""
    roles = {r["metadata"]["name"]: r["rules"] for r in packaged.objects("tenant") if r["kind"] == "Role"}
    for name, rules in roles.items():
        granted = {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        assert not any("*" in pair for pair in granted), name
        secrets = {verb for verb, resource in granted if resource == "secrets"}
        assert secrets == ({"create", "get", "delete"} if name in SECRET_READERS else set()), name
        assert ("create", "pods") not in granted or name == "ffdl-user"
        assert not {"roles", "rolebindings"} & {resource for _, resource in granted}
    executor = {(v, r) for rule in roles["ffdl-executor"] for r in rule["resources"] for v in rule["verbs"]}
    assert {resource for _, resource in executor} == {"workflowtaskresults", "services"}


def test_every_binding_is_within_its_namespace() -> None:
    """Nothing of a tenant reaches over its border."""
    kinds = {found["kind"] for found in packaged.objects("tenant")}
    assert not {"ClusterRole", "ClusterRoleBinding"} & kinds
