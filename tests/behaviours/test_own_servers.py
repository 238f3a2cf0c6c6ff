"""Parameter servers that are the framework's own: their pods run the command, as the learners' do."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.behaviours.user import User

TENSORFLOW = """
import json, os, signal, time

own = os.environ
task = json.loads(own["TF_CONFIG"])["task"]
about = json.dumps([task, "LEARNER_ID" in own, own["NUM_GPUS"], own["SAID"]])
name = os.path.join(own["JOB_STATE_DIR"], f"{task['type']}-{task['index']}")
with open(name + ".part", "w") as stream:
    stream.write(own["TF_CONFIG"])
os.rename(name + ".part", name)
os.write(1, f"{about}\\n".encode())
while task["type"] == "ps":
    signal.pause()
while not os.path.exists(os.path.join(own["JOB_STATE_DIR"], "gate")):
    time.sleep(0.05)
"""

# as ps-lite does: all report to the scheduler, which gives them numbers, and lets them go when all workers are done
MXNET = """
import os, socket, sys, time

own = os.environ
role, root = own["DMLC_ROLE"], (own["DMLC_PS_ROOT_URI"], int(own["DMLC_PS_ROOT_PORT"]))
servers, workers = int(own["DMLC_NUM_SERVER"]), int(own["DMLC_NUM_WORKER"])
begun = os.path.join(own["CHECKPOINT_DIR"], f"begun-{role}-{os.getpid()}-{time.time()}")
if role == "scheduler":
    with socket.create_server(root) as listener:
        streams = [listener.accept()[0].makefile("rw") for _ in range(servers + workers)]
    roles = [stream.readline().strip() for stream in streams]
    assert sorted(roles) == ["server"] * servers + ["worker"] * workers, roles
    open(begun, "w").close()
    for stream in streams:
        print("begin", file=stream, flush=True)
    for stream, other in zip(streams, roles):
        if other == "worker" and stream.readline() != "done\\n":
            sys.exit("a worker is gone")
    for stream in streams:
        print("end", file=stream, flush=True)
else:
    while True:
        try:
            connection = socket.create_connection(root)
            break
        except OSError:
            time.sleep(0.05)
    stream = connection.makefile("rw")
    print(role, file=stream, flush=True)
    assert stream.readline() == "begin\\n"
    while role == "worker" and not os.path.exists(os.path.join(own["JOB_STATE_DIR"], "gate")):
        time.sleep(0.05)
    if role == "worker":
        print("done", file=stream, flush=True)
    if stream.readline() != "end\\n":
        sys.exit("the scheduler is gone")
"""


def served(user: User, script: str, mode: str, gpus: int = 0) -> Path:
    distribution = {"kind": "parameter-server", "servers": 2, "cpus": 0.1, "mode": mode}
    folder = user.job(learners=2, cpus=0.2, gpus=gpus, distribution=distribution, env={"SAID": "yes"})
    (folder / "train.py").write_text(script)
    return folder


def test_servers_that_never_return_are_ended_with_the_job(user: User) -> None:
    """TensorFlow's join() does not: that is no failure, and nobody waits for it."""
    user.env["FFDL_MACHINE"] = user.env.get("FFDL_MACHINE", "cpus=4,memory=16GiB") + ",gpus=2"
    job = user.train(served(user, TENSORFLOW, "tensorflow", gpus=1))
    folder = user.volume(job) / "job"
    names = ("chief-0", "worker-0", "ps-0", "ps-1")
    user.wait_for(lambda: all((folder / name).exists() for name in names), "all four")
    clusters = [json.loads((folder / name).read_text())["cluster"] for name in names]
    assert [len(clusters[0][kind]) for kind in ("chief", "worker", "ps")] == [1, 1, 2]
    assert clusters == clusters[:1] * 4
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
    said = user.ffdl("logs", job, "--step", "parameter-server-2").stdout
    assert json.dumps([{"type": "ps", "index": 1}, False, "0", "yes"]) in said
    said = user.ffdl("logs", job, "--learner", "2").stdout
    assert json.dumps([{"type": "worker", "index": 0}, True, "1", "yes"]) in said


def of_role(user: User, role: str) -> list[int]:
    """The scripts with this part in it."""
    found = []
    for pid, said in user.processes().items():
        if "train.py" in said and said.startswith("python") and "ffdl.steps" not in said:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            found += [pid] * (f"DMLC_ROLE={role}".encode() in environment)
    return found


def test_a_scheduler_runs_beside_the_first_server(user: User) -> None:
    """Servers and workers of MXNet find each other by it; one that is killed takes all back, and the job goes on."""
    job = user.train(served(user, MXNET, "mxnet"))
    folder = user.volume(job) / "job" / "checkpoints"
    begun = lambda: len(list(folder.glob("begun-*"))) if folder.exists() else 0  # noqa: E731
    for number, victim in enumerate(("scheduler", "server", "worker"), 1):
        user.wait_for(lambda wanted=number: begun() == wanted, f"beginning {number}")  # type: ignore[misc]
        os.kill(of_role(user, victim)[0], signal.SIGKILL)
    user.wait_for(lambda: begun() == 4, "the last beginning")
    user.open_gate(job)
    assert user.until_over(job).state == "COMPLETED", user.story()
