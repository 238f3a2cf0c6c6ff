"""`ffdl show`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from . import text
from .output import write, write_lines
from .settings import Settings, Verb, job_argument, on_terminal, output_option, tell

if TYPE_CHECKING:
    from ..engines.base import Engine
    from ..engines.nodes import NodeStatus
    from ..engines.status import JobStatus

MOST_NODES = 40
MOST_LINES = 200  # of a tree; -o json shows all
WORKFLOW = "Workflow"
HEADINGS = ("STEP", "PHASE", "ATTEMPT", "EXIT", "STARTED", "TOOK", "MESSAGE")


@click.command("show", cls=Verb, examples=("ffdl show @latest", "ffdl show training-abc -o json"))
@job_argument
@click.option("--workflow", is_flag=True, help="The whole Argo Workflow, status included, as YAML (or -o json).")
@output_option("table", "json", "yaml", "name")
@click.pass_obj
def command(settings: Settings, job_id: str, workflow: bool, output: str) -> None:
    """Show all about a job: its state and why, its steps, learners and attempts."""
    engine, found = settings.engine(), settings.find(job_id)
    if output == "name":
        click.echo(found)
    elif workflow:
        write(engine.workflow(found), "yaml" if output == "table" else output)
    elif output != "table":
        write(_whole(engine.status(found), engine).to_dict(), output)
    else:
        status = engine.status(found)
        lines = description(status, time.time())
        if status.kind == WORKFLOW:
            lines += ["", *workflow_lines(engine.workflow(found), time.time())]
        write_lines(lines)
        for line in suggestions(status):
            tell(line)


def _whole(status: JobStatus, engine: Engine) -> JobStatus:
    """With the nodes of a Workflow that is no training job, too."""
    if status.kind != WORKFLOW:
        return status
    from ..engines.tree import statuses

    return replace(status, nodes=statuses(engine.workflow(status.id)))


def description(status: JobStatus, now: float) -> list[str]:
    """The lines of `ffdl show`."""
    facts = [
        ("Name", text.printable(status.name)),
        ("Id", status.id),
        ("Description", text.printable(status.description)),
        ("Continues", text.printable(status.continues)),
        ("State", _state(status)),
        ("Reason", text.printable(status.reason)),
        ("Warning", text.printable(status.warning)),
        ("Error code", status.error_code),
        ("Framework", text.printable(f"{status.framework} {status.version}".strip())),
        ("Kind", status.kind if status.kind == WORKFLOW else ""),
        ("Learners", f"{status.learners}{_each(status)}" if status.kind != WORKFLOW else ""),
        ("Attempts", _attempts(status) if status.kind != WORKFLOW else ""),
        ("Metrics", "  ".join(f"{name} {text.number(value, 6)}" for name, value in status.metrics.items())),
        ("Submitted", _when(status.submitted, now)),
        ("Started", _when(status.started, now)),
        ("Finished", _when(status.finished, now)),
    ]
    lines = [f"{name:<11}  {_coloured(value)}" for name, value in facts if value]
    if status.nodes:
        nodes, more = _most_telling(status)
        lines += ["", *text.table(HEADINGS, [_row(node, now) for node in nodes], ("ATTEMPT", "EXIT", "TOOK"))]
        lines += [f"… and {more} more learners; -o json shows all"] if more else []
    return lines


def _attempts(status: JobStatus) -> str:
    again = f" (killed and started again in place {text.plural(status.restarts, 'time')})" if status.restarts else ""
    return f"{status.attempts}{again}"


def _coloured(value: str) -> str:
    word = value.split(" ", 1)[0]
    return click.style(word, fg=text.COLOURS[word]) + value[len(word) :] if word in text.COLOURS else value


def _state(status: JobStatus) -> str:
    parts = []
    if status.progress is not None:
        parts.append(text.percent(status.progress))
    if status.step is not None:
        parts.append(f"step {status.step}" + (f" of {status.of}" if status.of else ""))
    if status.eta is not None:
        parts.append(f"{text.duration(status.eta)} to go")
    if status.halting:
        parts.append("halting")
    return status.state + (f" ({', '.join(parts)})" if parts else "")


def _each(status: JobStatus) -> str:
    from ..engines.failure import memory_words

    parts = []
    if status.cpus is not None:
        parts.append(f"{status.cpus:g} CPU" + ("" if status.cpus == 1 else "s"))
    parts.append(text.plural(status.gpus, "GPU"))
    if status.memory is not None:
        parts.append(memory_words(status.memory))
    return f" ({'each ' if status.learners > 1 else ''}{', '.join(parts)})"


def _when(moment: float | None, now: float) -> str:
    return "" if moment is None else f"{text.date(moment)} ({text.duration(max(0.0, now - moment))} ago)"


def _row(node: NodeStatus, now: float) -> tuple[str, ...]:
    took = "" if node.started is None else text.duration((node.finished or now) - node.started)
    code = "" if node.exit_code is None else str(node.exit_code)
    return (
        node.name,
        node.phase,
        str(node.attempt),
        code,
        text.date(node.started),
        took if node.ended or node.phase == "Running" else "",
        text.printable(node.message),
    )


def _most_telling(status: JobStatus) -> tuple[list[NodeStatus], int]:
    """All nodes, or of very many learners those that failed or wait before those that run or have ended well."""
    if len(status.nodes) <= MOST_NODES:
        return list(status.nodes), 0
    dull = {"Succeeded": 1, "Running": 1}
    learners = sorted((n for n in status.nodes if n.learner), key=lambda n: (dull.get(n.phase, 0), n.learner or 0))
    kept = set(learners[: MOST_NODES - len(status.nodes) + len(learners)])
    return [n for n in status.nodes if not n.learner or n in kept], len(learners) - len(kept)


def suggestions(status: JobStatus) -> list[str]:
    """What one may want to do next with such a job."""
    job_id = status.id
    if status.kind == WORKFLOW:
        return _of_a_workflow(status)
    if status.state == "HALTED":
        commands = [("resume", "lets it go on")]
        if status.checkpoint is not None:
            commands.append(("download --checkpoint", "fetches its last checkpoint"))
    elif status.state == "COMPLETED":
        commands = [
            ("download", "fetches its results"),
            ("logs", "prints what it wrote"),
            ("resubmit", "runs it again"),
        ]
    elif status.state == "FAILED":
        commands = [("logs", "prints what it wrote"), ("events", "tells what happened"), ("resubmit", "runs it again")]
        if status.checkpoint is not None:
            commands.append(("resubmit --from-checkpoint", "goes on as a new job from its last checkpoint"))
    else:
        commands = [("logs -f", "follows it"), ("halt", "halts it, to go on later"), ("stop", "ends it")]
    return _listed(commands, job_id)


def _listed(commands: list[tuple[str, str]], job_id: str) -> list[str]:
    width = max(len(verb) for verb, _ in commands)
    return ["", *(f"ffdl {verb} {job_id}{' ' * (width - len(verb))}   {words}" for verb, words in commands)]


def _of_a_workflow(status: JobStatus) -> list[str]:
    logs, graph = ("logs", "prints what its pods wrote"), ("graph", "draws it")
    if status.terminal:
        return _listed([logs, graph, ("resubmit", "runs it again")], status.id)
    resume = [("resume", "lets it go on")] if status.state == "HALTED" or status.reason.startswith("waits at") else []
    return _listed([*resume, ("wait", "waits for its end"), graph, ("stop", "ends it")], status.id)


def workflow_lines(workflow: dict[str, Any], now: float) -> list[str]:
    """The tree of a Workflow's nodes, then what it has put out."""
    from ..engines.tree import forest, rows
    from . import tree

    width = text.terminal_width() if on_terminal(sys.stdout) else None
    outputs = ((workflow.get("status") or {}).get("outputs") or {}).get("parameters") or []
    lines = tree.lines(rows(forest(workflow), MOST_LINES), now, width)
    return lines + [f"{each['name']}: {text.printable(str(each.get('value', '')))}" for each in outputs]
