"""`ffdl doctor` without a cluster: what this machine offers, and what can't be reached."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from tests.cli.shell import Shell


def test_it_says_what_this_machine_offers(shell: Shell) -> None:
    """Why a job here runs without namespaces, or is told that it is too large, is seen before one is submitted."""
    found = json.loads(shell.ffdl("doctor", "-o", "json").stdout)
    topics = {finding["topic"]: finding for finding in found}
    assert set(topics) == {"machine", "isolation", "memory", "python", "state"}
    assert "4 CPUs, 16 GiB of memory and 0 GPUs" in topics["machine"]["words"]
    assert str(shell.home) in topics["state"]["words"]
    lines = shell.ffdl("doctor").stdout.splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith(" ")] == [[f["state"], f["topic"]] for f in found]


def test_isolation_that_is_switched_off_is_a_note_with_a_remedy(shell: Shell) -> None:
    """Containers often forbid namespaces; the engine works without, and says what that means."""
    found = json.loads(shell.ffdl("doctor", "-o", "json", FFDL_ISOLATION="none", FFDL_CGROUP="none").stdout)
    states = {finding["topic"]: finding["state"] for finding in found}
    assert (states["isolation"], states["memory"]) == ("note", "note")


def test_a_setting_that_means_nothing_is_a_problem(shell: Shell) -> None:
    """One line and exit code 4, as for a cluster that can't be used."""
    done = shell.ffdl("doctor", "-o", "json", code=4, FFDL_MACHINE="cpus=many")
    (problem,) = [finding for finding in json.loads(done.stdout) if finding["state"] == "problem"]
    assert "FFDL_MACHINE" in problem["words"]


def test_a_cluster_that_is_not_there_is_a_finding(shell: Shell) -> None:
    """The most common problem of all, in one line."""
    clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    users = [{"name": "u", "user": {"token": "t"}}]
    config = {"clusters": clusters, "contexts": contexts, "users": users, "current-context": "x"}
    (shell.folder / "kc").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    done = shell.ffdl("--engine", "argo", "doctor", code=4, KUBECONFIG=str(shell.folder / "kc"))
    assert "problem  cluster" in done.stdout
    assert "connection refused" in done.stdout
    assert "1 problem found" in done.stderr


@pytest.mark.parametrize("what", ["tenant", "controller", "controller-3.7"])
def test_what_an_administrator_applies_can_be_printed(shell: Shell, what: str) -> None:
    """An ffdl from a package registry has no checkout beside it."""
    printed = list(yaml.safe_load_all(shell.ffdl("doctor", "--print", what, FFDL_NAMESPACE="vision").stdout))
    spaces = {found["metadata"].get("namespace") for found in printed} - {None}
    assert spaces == {"vision" if what == "tenant" else "argo"}
    assert all(found["apiVersion"] and found["kind"] for found in printed)


def test_the_sweep_is_no_verb_that_people_are_shown(shell: Shell) -> None:
    """It is for the cluster; the help is for people."""
    done: subprocess.CompletedProcess[str] = shell.ffdl("--help")
    assert "doctor" in done.stdout
    assert "sweep" not in done.stdout
