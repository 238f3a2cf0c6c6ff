"""The agent's Python runs in images that know nothing of it: made here as the image's recipe makes it, from our own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ffdl.images import context
from ffdl.learner import contract
from ffdl.steps.environment import Place, learner_environment
from ffdl.steps.install_agent import install

GCC = shutil.which("gcc")
RECIPES = Path(context.__file__).parent
SAY = """
import json, sys
from ffdl.steps.environment import given
print(json.dumps([sys.executable, sys.prefix, given(), sys.argv[1:]]))
"""

pytestmark = pytest.mark.skipif(GCC is None, reason="needs gcc and a static C library: apt install gcc libc6-dev")


def compiled(source: Path, target: Path, *flags: str) -> Path:
    assert GCC is not None
    subprocess.run([GCC, "-Os", "-Wall", "-Werror", *flags, "-o", target, source], check=True)
    return target


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image ffdl-agent holds."""
    folder = tmp_path_factory.mktemp("packed") / "agent"
    python = Path(sys.base_prefix) / "bin" / "python3"
    subprocess.run([python, RECIPES / "pack.py", folder], check=True, env={"PATH": os.environ["PATH"]})
    compiled(RECIPES / "launcher.c", folder / "python", "-static")
    made = tmp_path_factory.mktemp("context")
    context.write_context(made)
    shutil.copytree(made / "code", folder / "code")
    return folder


@pytest.fixture
def agent(packed: Path, tmp_path: Path) -> Path:
    """The Python of a learner's pod, copied there by the one of the image."""
    command = [packed / "python", "-m", "ffdl.steps.install_agent", tmp_path / "agent"]
    subprocess.run(command, env={}, cwd="/", check=True)
    return tmp_path / "agent" / os.path.basename(contract.AGENT_PYTHON)


def said(agent: Path, *arguments: str, **environment: str) -> tuple[str, str, dict[str, str], list[str]]:
    done = subprocess.run([agent, "-c", SAY, *arguments], env=environment, capture_output=True, text=True, check=True)
    executable, prefix, seen, rest = json.loads(done.stdout)
    assert done.stderr == ""
    return executable, prefix, seen, rest


def test_it_uses_nothing_but_its_own_folder(agent: Path) -> None:
    """A learner's image may hold another libc, an older one, or none: not one instruction of it may be ours."""
    code = "import ctypes, hashlib, socket, ssl, ffdl.steps.agent; print(open('/proc/self/maps').read())"
    maps = subprocess.run([agent, "-c", code], env={}, capture_output=True, text=True, check=True).stdout
    mapped = [line.split(maxsplit=5) for line in maps.splitlines()]
    code_files = {fields[5] for fields in mapped if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/")}
    assert len(code_files) > 5
    assert {name for name in code_files if not name.startswith(str(agent.parent))} == set()


def test_an_images_settings_for_the_loader_and_for_python_reach_the_command_alone(agent: Path, tmp_path: Path) -> None:
    """Images preload allocators built for their own libc: in our process that is fatal, in the user's it is wanted."""
    (tmp_path / "other.c").write_text("int nothing;\n")
    (tmp_path / "wants.c").write_text("int nothing_else;\n")
    other = compiled(tmp_path / "other.c", tmp_path / "libother.so", "-shared", "-fPIC")
    flags = ("-shared", "-fPIC", "-Wl,--no-as-needed", f"-L{tmp_path}", "-lother")
    fatal = compiled(tmp_path / "wants.c", tmp_path / "libwants.so", *flags)
    other.unlink()  # a library that is missing keeps any program with this LD_PRELOAD from starting
    environment = {"LD_PRELOAD": str(fatal), "LD_LIBRARY_PATH": str(tmp_path), "PYTHONHOME": "/nowhere", "LANG": "C"}
    plain = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, check=False)
    assert plain.returncode == 127
    _, _, seen, _ = said(agent, **environment)
    spec = contract.JobSpec("job", "true", "custom", "x", 1, 1.0, 0.0, 1 << 20, None)
    command = learner_environment(spec, "training-x", Place(0, 0, 1, "host", 1, "socket", "library"), seen, {})
    assert {name: command.get(name) for name in environment} == environment
    assert not [name for name in command if name.startswith("FFDL_") and name != contract.AGENT_SOCKET_ENV]
    assert "LC_CTYPE" not in command


def test_it_is_started_again_by_its_own_name(agent: Path) -> None:
    """`sys.executable` must work, as everywhere; arguments arrive as they were given."""
    arguments = ["two words", "", "ü", "--"]
    executable, prefix, _, rest = said(agent, *arguments)
    assert (executable, prefix, rest) == (str(agent), str(agent.parent), arguments)
    code = (
        "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import sys; sys.exit(7)']).returncode)"
    )
    assert subprocess.run([agent, "-c", code], env={}, check=False).returncode == 7


def test_it_works_for_any_user_and_writes_nothing(agent: Path) -> None:
    """A learner's uid is its image's; what another wrote it may only read."""
    names = [agent.parent, *agent.parent.rglob("*")]
    programs = [agent, agent.parent / "bin" / "python3", agent.parent / "lib" / "loader"]
    assert [path for path in names if not path.stat().st_mode & 0o004] == []
    assert [path for path in programs if not path.stat().st_mode & 0o001] == []
    before = len(names)
    subprocess.run([agent, "-m", "ffdl.steps.agent"], env={}, capture_output=True, check=False)
    modules = [path for path in agent.parent.rglob("*") if "ffdl" not in path.parts]
    assert len(modules) == len([path for path in names[1:] if "ffdl" not in path.parts]), before


def test_installing_twice_is_installing_once(agent: Path, packed: Path) -> None:
    """The kubelet starts init containers again after a node's restart."""
    again = install(str(agent.parent), str(packed / "python"))
    assert again == str(agent)
    assert said(agent)[0] == str(agent)


def test_what_is_not_whole_does_not_start(agent: Path) -> None:
    """One line and a code that means `again, please`: no core dump, nothing final."""
    (agent.parent / "lib" / "loader").unlink()
    done = subprocess.run([agent, "-c", ""], env={}, capture_output=True, text=True, check=False)
    assert done.returncode == contract.EXIT_AGAIN
    assert done.stderr.startswith("ffdl: the agent can't start: ")
