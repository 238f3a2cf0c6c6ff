"""What parameter servers keep: through their own ends, halts, and the losses of learners."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from ffdl.learner import contract
from ffdl.learner.exchange import EMPTY, HEAD, OPENS, SERVERS
from ffdl.learner.optimizers import SGD
from ffdl.learner.parameter_server import ParameterServer
from ffdl.learner.rendezvous import Place, connect
from tests.learner.conftest import WAIT, AgentEnd, Start
from tests.learner.parameter_server.servers import Begin, Job


def test_what_was_saved_comes_back(job: Begin, tmp_path: Path) -> None:
    """A server that was killed goes on with the parameters, and the momentum, of the step that all go back to."""
    two = job(2, 2, "sync")

    def learn(rank: int) -> np.ndarray:
        own = np.zeros(1000)
        server = two.learner(rank, own, SGD(0.1, momentum=0.9))
        for step in range(6):
            server.step(np.full(1000, float(step)))
            if step == 2 and rank == 0:
                server.save(3)
        server.close()
        return own

    expected, _ = two.all(learn)
    for number, agent in enumerate(two.agents):
        agent.expect("checkpointed", step=3)
        two.processes[number].kill()
        agent.world["step"] = 3
        two.processes[number] = two.begin(number)
        agent.expect("listener")  # which it asks for once it has what it saved

    def go_on(rank: int) -> np.ndarray:
        own = np.full(1000, 77.0)
        server = two.learner(rank, own, SGD(0.1, momentum=0.9))
        for step in range(3, 6):
            server.step(np.full(1000, float(step)))
        server.close()
        return own

    assert [own.tobytes() for own in two.all(go_on)] == [expected.tobytes()] * 2


# Learners that each go at their own pace: nobody's halt or death takes the model back by what others have found out.


def model_after(job: Job, rank: int = 1) -> list[float]:
    """What servers have that begin again, as `rank` gets it."""
    job.begin_again()
    own = np.full(5, 77.0)
    job.learner(rank, own).close()
    return list(own)


def test_who_is_not_done_gives_parameters_to_servers_that_have_none(job: Begin) -> None:
    """Learner 1 is done, and a server is lost before it has saved anything: nobody waits for learner 1."""
    two = job(2, 2, "async", step=None)
    two.learner(0, np.zeros(5)).close()
    two.halt()
    for agent in two.agents:
        shutil.rmtree(agent.world["checkpoint_dir"])
        agent.world["first"] = 1
    two.begin_again()
    own = np.full(5, 7.0)
    two.learner(1, own).step(np.full(5, -1.0))
    assert list(own) == [8.0] * 5


@pytest.mark.parametrize("mode", ["async", "easgd"])
def test_a_halt_keeps_what_came_after_the_last_save(job: Begin, mode: str) -> None:
    """Also that of a learner which went on alone: servers keep what they have when they leave."""
    two = job(2, 2, mode, step=None)
    own = [np.zeros(5), np.zeros(5)]
    first, second = (two.learner(rank, own[rank]) for rank in range(2))
    for _ in range(3):
        first.step(np.full(5, -1.0))
    first.save(3)
    first.close()
    for _ in range(500):
        second.step(np.full(5, -1.0))
    at_servers = np.zeros(5)
    two.learner(0, at_servers).close()
    second.close()
    two.halt()
    assert model_after(two) == list(at_servers)
    assert mode == "easgd" or list(at_servers) == [503.0] * 5


def test_the_first_learner_that_is_there_says_when_servers_save(job: Begin) -> None:
    """Once learner 1 is done that is learner 2: a kill then costs no more than its saves are apart."""
    two = job(2, 2, "async", step=None)
    own = [np.zeros(5), np.zeros(5)]
    first, second = (two.learner(rank, own[rank]) for rank in range(2))
    first.step(np.full(5, -1.0))
    second.step(np.full(5, -1.0))
    second.save(70)  # that is not its part yet
    first.save(1)
    for agent in two.agents:
        agent.expect("checkpointed", step=1)
    waits = threading.Thread(target=first.finish)
    waits.start()  # it is through, and there until all are
    step = 70
    while second._first == 0:  # until the servers know
        second.step(np.full(5, -1.0))
        step += 1
    second.save(step)
    for agent in two.agents:
        agent.expect("checkpointed", step=step)
    second.step(np.full(5, -1.0))
    second.finish()
    waits.join(WAIT)
    assert model_after(two) == [step - 70 + 2.0] * 5
    assert all(not any(said.get("step") == 70 for said in agent.said) for agent in two.agents)


def test_servers_save_under_the_same_name_whichever_word_comes_first(job: Begin) -> None:
    """Two learners may both take themselves for the first one for a moment; the names of what is kept never go back."""
    two = job(2, 1, "async", step=None)
    own = [np.zeros(5), np.zeros(5)]
    both = [two.learner(rank, own[rank]) for rank in range(2)]
    both[1]._first = 1
    both[1].save(500)
    two.agents[0].expect("checkpointed", step=500)
    both[0].step(np.full(5, -1.0))
    both[0].save(3)
    two.agents[0].expect("checkpointed", step=500)
    assert model_after(two) == [1.0] * 5


def test_a_halt_between_two_worlds_keeps_what_servers_have(job: Begin) -> None:
    """One server is lost, and before it is there again the job is halted: the others' parts stay what they were."""
    one = job(1, 1, "async", step=None)
    own = np.zeros(5)
    server = one.learner(0, own)
    server.step(np.full(5, -1.0))
    server.close()
    one.agents[0].tell({"type": "break", "generation": 3})
    one.halt()
    assert model_after(one, 0) == [1.0] * 5


LONG_STEPS = """
import pathlib
import numpy as np
from ffdl import learner
from ffdl.learner.parameter_server import SGD

def train(job):
    state = job.restore() or {"step": 0}
    own = np.zeros(5)
    server = job.parameter_server(own, SGD(1.0))
    for step in range(state["step"], 3):
        print("begins", step, flush=True)
        while step == 1 and not pathlib.Path("go-on").exists():
            pass
        server.step(np.full(5, -1.0))
        state["step"] = step + 1
        job.step(step + 1, of=3, state=state)

learner.run(train)
"""


def test_a_learner_whose_step_outlasts_the_servers_halts_with_its_state(
    job: Begin, agent: AgentEnd, start: Start, tmp_path: Path
) -> None:
    """Servers do not wait for it for long, and what it has done since its last save is not done again."""
    one = job(1, 2, "async", step=None, patch="serving.LEAVE_WITHIN = 0.1")
    agent.world |= {"mode": "async", "servers": one.addresses, "key": one.key.hex()}
    process = start(LONG_STEPS, env={"FFDL_AGENT_SOCKET": str(agent.path)})
    assert [process.stdout.readline() for _ in range(2)] == ["begins 0\n", "begins 1\n"]
    agent.halt()
    one.halt()
    (tmp_path / "go-on").touch()
    agent.expect("checkpointed", step=1)
    assert process.wait(WAIT) == contract.EXIT_AGAIN
    assert model_after(one, 0) == [1.0] * 5


def test_a_server_that_never_got_values_has_none(job: Begin) -> None:
    """A world that is over before the first rank has given its model: the next one does not begin with zeros."""
    one = job(1, 1, "async")
    (agent,) = one.agents
    about = {"elements": 4, "dtype": "float64", "sent_as": "float64", "mode": "async"}
    text = json.dumps({**about, "optimizer": {"kind": "sgd", "lr": 0.1}}).encode()
    with connect(one.place(0), SERVERS, one.addresses[0], lambda: None) as connection:
        connection.sendall(HEAD.pack(OPENS, len(text), 0, 0.0) + text)
        connection.settimeout(WAIT)
        assert HEAD.unpack(connection.recv(HEAD.size))[0] == EMPTY
    agent.tell({"type": "break", "generation": 3})
    agent.tell({**agent.world, "generation": 4})
    own = np.arange(4.0)
    server = ParameterServer(Place(0, 4, one.key), one.addresses, own, SGD(0.1), "async")
    server.close()
    assert list(own) == [0.0, 1.0, 2.0, 3.0]
