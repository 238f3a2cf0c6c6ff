"""The tree of nodes that people read: what is in what, and what is left out where there is too much of it."""

from ffdl.engines.tree import forest, inner_first, rows

T = "2026-11-21T02:00:{:02d}Z"


def node(name, kind="Pod", phase="Succeeded", within="", at=0, **more):
    display = name.removeprefix(f"{within}.") if within else name
    made = {"id": name, "name": name, "displayName": display, "type": kind, "phase": phase, "startedAt": T.format(at)}
    return made | ({"boundaryID": within} if within else {}) | more


def workflow(*nodes):
    return {"metadata": {"name": "wf"}, "spec": {}, "status": {"nodes": {each["id"]: each for each in nodes}}}


def drawn(*nodes, most=None):
    found = rows(forest(workflow(*nodes)), most)
    return [f"{row.lines}{row.item.mark} {row.item.name}" if row.item else f"{row.lines}{row.words}" for row in found]


def test_steps_stand_below_what_runs_them_in_the_order_in_which_they_began():
    """Argo's groups of steps are no nodes to a person, and its API gives nodes in any order."""
    later = node("wf[1].b", within="wf", at=2) | {"displayName": "b"}
    assert drawn(
        node("wf.onExit", at=9),
        later,
        node("wf[1]", "StepGroup", within="wf", at=2),
        node("wf[0].a", within="wf", at=1) | {"displayName": "a"},
        node("wf", "Steps"),
    ) == ["✔ wf", "├─✔ a", "└─✔ b", "✔ wf.onExit"]


def test_one_attempt_is_its_task_and_more_are_below_it():
    """Nobody wants to read each name twice as long as nothing was tried twice."""
    retried = {"nodeFlag": {"retried": True}}
    once = [
        node("wf.a", "Retry", "Running", "wf", children=["wf.a(0)"]),
        node("wf.a(0)", phase="Running", within="wf", message="ContainerCreating", **retried),
    ]
    root = node("wf", "DAG", "Running")
    assert drawn(root, *once) == ["● wf", "└─● a"]
    (tree,) = forest(workflow(root, *once))
    assert (tree.children[0].message, tree.children[0].attempts) == ("ContainerCreating", 1)
    twice = [
        node("wf.a", "Retry", "Running", "wf", children=["wf.a(0)", "wf.a(1)"]),
        node("wf.a(0)", phase="Failed", within="wf", **retried),
        node("wf.a(1)", phase="Failed", within="wf", message="main: Error (exit code 3)", **retried),
    ]
    assert drawn(root, *twice) == ["● wf", "└─◷ a", "  ├─✖ a(0)", "  └─✖ a(1)"]


def test_what_is_retried_as_a_whole_shows_its_insides_once():
    """A DAG with one attempt looks like a DAG."""
    inner = [
        node("wf.a", "Retry", within="wf", children=["wf.a(0)"]),
        node("wf.a(0)", "DAG", within="wf", nodeFlag={"retried": True}),
        node("wf.a(0).x", within="wf.a(0)"),
    ]
    assert drawn(node("wf", "DAG"), *inner) == ["✔ wf", "└─✔ a", "  └─✔ x"]


def test_hooks_are_of_what_they_belong_to():
    """Those of the Workflow stand beside it."""
    hooked = {"nodeFlag": {"hooked": True}}
    nodes = [
        node("wf.a", within="wf"),
        node("wf.a.onExit", within="wf", at=1, **hooked),
        node("wf.hooks.x", at=1, **hooked),
    ]
    assert drawn(node("wf", "DAG"), *nodes) == ["✔ wf", "└─✔ a", "  └─✔ a.onExit", "✔ wf.hooks.x"]


def loop(count, **phases):
    items = [node(f"wf.l({n}:{n})", within="wf", phase=phases.get(f"n{n}", "Succeeded")) for n in range(count)]
    return [
        node("wf", "DAG", "Running"),
        node("wf.l", "TaskGroup", "Running", "wf", children=[i["id"] for i in items]),
        *items,
    ]


def test_of_very_many_what_is_not_as_it_should_be_is_shown():
    """A loop of ten thousand fits a screen, and the one that failed is on it."""
    lines = drawn(*loop(10_000, n7777="Failed", n8888="Running"), most=12)
    assert len(lines) <= 12
    assert "  ├─✖ l(7777:7777)" in lines
    assert "  ├─● l(8888:8888)" in lines
    assert lines[-1] == "  └─… 9996 more: ✔ 9996 Succeeded"
    assert len(drawn(*loop(10_000))) == 10_002


def test_no_screen_is_too_small():
    """Of a tree that can't be summed up, the beginning is shown, and how much is missing."""
    chain = [
        node("wf" + ".a" * depth, "DAG", "Running", "wf" + ".a" * (depth - 1) if depth else "") for depth in range(60)
    ]
    lines = drawn(*chain, most=10)
    assert len(lines) == 10
    assert lines[-1] == "… and 51 more lines"


def test_news_is_told_from_within_to_without():
    """A step ends before what runs it."""
    nodes = [
        node("wf", "DAG"),
        node("wf.a", "DAG", within="wf"),
        node("wf.a.x", within="wf.a"),
        node("wf.b", within="wf"),
    ]
    assert [item.path for item in inner_first(forest(workflow(*nodes)))] == ["a.x", "a", "b", "wf"]


def test_a_suspended_node_says_how_it_is_let_go():
    """The command can be copied from the screen."""
    made = workflow(node("wf", "DAG", "Running"), node("wf.ask", "Suspend", "Running", "wf", templateName="ask"))
    made["spec"]["templates"] = [{"name": "ask", "suspend": {"duration": "90"}}]
    ask = forest(made)[0].children[0]
    assert (ask.mark, ask.message) == ("‖", "waits for 90s; `ffdl resume wf --node ask`")
