"""Drawings of Workflows: what is in them, and that the picture can be read."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from ffdl.engines.graph import Box, Edge, drawing
from ffdl.engines.graph.dot import dot
from ffdl.engines.graph.layout import isotonic, layout
from ffdl.engines.graph.svg import measure, svg
from ffdl.engines.graph.text import lines

SVG = "{http://www.w3.org/2000/svg}"


def leaf(name):
    return {"name": name, "container": {"image": "debian", "command": ["true"]}}


def task(name, template="leaf", depends="", **more):
    return {"name": name, "template": template, **({"depends": depends} if depends else {}), **more}


def workflow(*templates, nodes=(), **spec):
    status = {"nodes": {node["id"]: node for node in nodes}}
    spec = {"entrypoint": templates[0]["name"], "templates": [*templates, leaf("leaf")], **spec}
    return {"metadata": {"name": "wf"}, "spec": spec, "status": status}


def dag(name, *tasks):
    return {"name": name, "dag": {"tasks": list(tasks)}}


def told(root):
    """Each line's words, and what it comes after."""
    return [(f"{line.before}{line.mark} {line.title}", line.subtitle, line.after) for line in lines(root)]


def node(name, kind="Pod", phase="Succeeded", **more):
    display = name.removeprefix("wf.") if name != "wf" else name
    return {"id": name, "name": name, "displayName": display, "type": kind, "phase": phase, **more}


def test_tasks_come_after_what_they_wait_for_and_what_they_run_is_in_them():
    """The file may list tasks in any order, and names templates that stand elsewhere."""
    inner = {"name": "inner", "steps": [[task("one")], [task("two"), task("three")], [task("four"), task("five")]]}
    last = task("d", depends="b && (c.Failed || c.Errored)")
    main = dag("main", last, task("b", "inner", depends="a"), task("a"), task("c"))
    root = drawing(workflow(main, inner, onExit="leaf"))
    assert told(root) == [
        ("· wf", "main", ""),
        ("├─· a", "leaf", ""),
        ("├─· c", "leaf", ""),
        ("├─· b", "inner", "a"),
        ("│ ├─· one", "leaf", ""),
        ("│ ├─· two", "leaf", "one"),
        ("│ ├─· three", "leaf", "one"),
        ("│ ├─· four", "leaf", "two, three"),
        ("│ └─· five", "leaf", "two, three"),
        ("└─· d", "leaf", "b, c (Failed or Errored)"),
        ("· exit handler", "leaf", "wf (on exit)"),
    ]


def test_loops_conditions_and_hooks_are_named():
    """What decides how often a task runs, and whether, is part of the picture."""
    hooks = {"exit": {"template": "leaf"}, "slow": {"template": "leaf", "expression": "steps.a.status == 'Running'"}}
    tasks = (task("a", withItems=[1, 2, 3]), task("b", withParam="{{x}}", when="{{y}}"), task("c", hooks=hooks))
    assert told(drawing(workflow(dag("main", *tasks))))[1:] == [
        ("├─· a", "leaf × 3", ""),
        ("├─· b", "leaf × each of a list when {{y}}", ""),
        ("├─· c", "leaf", ""),
        ("├─· c.onExit", "leaf", "c"),
        ("└─· c.hooks.slow", "leaf", "c (steps.a.status == 'Running')"),
    ]


def test_a_template_that_calls_itself_is_drawn_once():
    """Recursion has no end, a picture has."""
    again = dag("main", task("toss"), task("again", "main", depends="toss"))
    assert told(drawing(workflow(again)))[1:] == [("├─· toss", "leaf", ""), ("└─· again", "↻ main", "toss")]
    doubling = [dag(f"t{n}", task("x", f"t{n + 1}"), task("y", f"t{n + 1}")) for n in range(40)]
    assert len(list(drawing(workflow(*doubling, dag("t40", task("x")))).all())) < 10_000


def test_templates_of_others_and_what_a_library_offers():
    """References are followed; a WorkflowTemplate without entrypoint is all that others may call."""
    made = workflow(dag("main", {"name": "a", "templateRef": {"name": "lib", "template": "t"}}, task("b", "nowhere")))
    stored = {"namespaced/lib/t": dag("t", task("inner", "u")), "namespaced/lib/u": leaf("u")}
    made["status"]["storedTemplates"] = stored
    root = drawing(made)
    assert told(root)[1:] == [("├─· a", "lib/t", ""), ("│ └─· inner", "u", ""), ("└─· b", "nowhere", "")]
    assert next(box for box in root.all() if box.title == "b").facts == "this template is not known here"
    library = workflow(dag("main", task("a")), leaf("spare"))
    del library["spec"]["entrypoint"]
    assert [box.title for box in drawing(library).children] == ["main", "spare"]


def test_states_are_shown_where_it_has_run_and_what_has_not_begun_is_there_too():
    """One picture tells how far it is and what is still to come."""
    loops = (task("many", withItems=[*range(100)]), task("few", withItems=["x"]))
    main = dag("main", task("a"), *loops, task("c", depends="a"))
    few = [node("wf.few", "TaskGroup", "Running"), node("wf.few(0:x)", phase="Running")]
    many = [node("wf.many", "TaskGroup", "Running")]
    many += [node(f"wf.many({n}:{n})", phase="Failed" if n else "Running") for n in range(100)]
    retried = [
        node("wf.a", "Retry", children=["wf.a(0)", "wf.a(1)"]),
        node("wf.a(0)", phase="Failed", nodeFlag={"retried": True}),
        node("wf.a(1)", nodeFlag={"retried": True}),
    ]
    root = drawing(workflow(main, nodes=[node("wf", "DAG", "Running"), *few, *many, *retried]))
    assert told(root) == [
        ("● wf", "main", ""),
        ("├─✔ a", "leaf attempt 2", ""),
        ("├─● many", "leaf × 100: ✖ 99 ● 1", ""),
        ("├─● few", "leaf", ""),
        ("│ └─● few(0:x)", "leaf", ""),
        ("└─· c", "leaf", "a"),
    ]


def test_what_is_retried_shows_its_last_attempts_insides():
    """The first one's failure is history."""
    inner = dag("inner", task("x"))
    first = node("wf.a(0)", "DAG", "Failed", nodeFlag={"retried": True})
    second = node("wf.a(1)", "DAG", "Running", nodeFlag={"retried": True})
    inside = [node("wf.a(0).x", phase="Failed"), node("wf.a(1).x", phase="Running")]
    retry = node("wf.a", "Retry", "Running", children=["wf.a(0)", "wf.a(1)"])
    root = drawing(workflow(dag("main", task("a", "inner")), inner, nodes=[retry, first, second, *inside]))
    assert told(root)[1:] == [("└─● a", "inner attempt 2", ""), ("  └─● x", "leaf", "")]


def scrambled(seed, depth=2):
    """A box with random ones in it, some of which hold more, and random edges among them."""
    rng = random.Random(seed)
    words = [("t" * rng.randint(1, 30), "sub" * rng.randint(0, 9)) for _ in range(rng.randint(1, 14))]
    boxes = [Box(f"{depth}-{n}-{rng.random()}", *each) for n, each in enumerate(words)]
    if depth:
        for box in rng.sample(boxes, k=min(len(boxes), rng.randint(0, 3))):
            inner = scrambled(rng.random(), depth - 1)
            box.children, box.edges = inner.children, inner.edges
    pairs = [(a, b) for b in range(len(boxes)) for a in range(b)]
    chosen = rng.sample(pairs, k=min(len(pairs), rng.randint(0, 20)))
    edges = [Edge(boxes[a].id, boxes[b].id, rng.choice(("", "Failed"))) for a, b in chosen]
    rng.shuffle(boxes)
    return Box("root", "root", children=boxes, edges=edges)


def overlap(one, other):
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def every(placed):
    yield placed
    for child in placed.children:
        yield from every(child)


@pytest.mark.parametrize("seed", range(60))
def test_boxes_never_overlap_and_edges_lead_downwards_past_them(seed):
    """Whatever the graph: what is one box stays one, what comes later stands lower, no arrow runs through a box."""
    placed = layout(scrambled(seed), measure)
    for holder in every(placed):
        for number, child in enumerate(holder.children):
            assert holder.x < child.x
            assert child.x + child.width < holder.x + holder.width
            assert holder.y < child.y
            assert child.y + child.height < holder.y + holder.height
            assert not any(overlap(child, other) for other in holder.children[number + 1 :])
        places = {child.box.id: child for child in holder.children}
        assert len(holder.routes) == len(holder.box.edges)
        for route in holder.routes:
            source, target = places[route.edge.source], places[route.edge.target]
            assert source.y + source.height < target.y
            assert route.points[0] == pytest.approx((source.x + source.width / 2, source.y + source.height))
            assert route.points[-1] == pytest.approx((target.x + target.width / 2, target.y))
            assert list(route.points) == sorted(route.points, key=lambda point: point[1])
            for (x, top), (below, bottom) in zip(route.points[::2], route.points[1::2], strict=False):
                assert x == below
                others = [p for p in places.values() if p is not source and p is not target]
                assert not any(p.x < x < p.x + p.width and p.y < bottom and top < p.y + p.height for p in others)


def test_the_same_workflow_gives_the_same_picture():
    """Pictures are kept beside Workflows: they change when those do."""
    assert svg(scrambled(3), "x") == svg(scrambled(3), "x")


def test_a_chain_is_a_straight_line_and_a_fork_is_symmetrical():
    """What is simple must look simple."""
    chain = Box("", "", children=[Box(n, n) for n in "abc"], edges=[Edge("a", "b"), Edge("b", "c")])
    middles = {round(child.x + child.width / 2, 3) for child in layout(chain, measure).children}
    assert len(middles) == 1
    fork = Box("", "", children=[Box(n, n) for n in "abc"], edges=[Edge("a", "b"), Edge("a", "c")])
    a, b, c = (child.x for child in layout(fork, measure).children)
    assert a - b == pytest.approx(c - a)


def test_positions_are_the_nearest_in_order():
    """Least squares under the order: checked against a search."""
    assert isotonic([3.0, 1.0, 2.0], [1, 1, 1]) == pytest.approx([2.0, 2.0, 2.0])
    assert isotonic([1.0, 4.0, 2.0, 5.0], [1, 3, 1, 1]) == pytest.approx([1.0, 3.5, 3.5, 5.0])


def test_svg_is_xml_that_a_screen_reader_can_read():
    """Names are a user's, so they are escaped; every box says its name, state and why; colour is never alone."""
    odd = "a<b>&\"c'"
    main = dag("main", task(odd), task("b", depends="x"))
    nodes = [node("wf", "DAG", "Failed"), node(f"wf.{odd}", phase="Failed", message="main: Error (exit code 3)")]
    root = ElementTree.fromstring(svg(drawing(workflow(main, nodes=nodes)), "my <flow>"))
    assert root.find(f"{SVG}title").text == "my <flow>"
    assert root.find(f"{SVG}desc").text == "1 Failed"
    told = [group.find(f"{SVG}title").text for group in root.iter(f"{SVG}g")]
    assert f"{odd}\nleaf\nFailed\nmain: Error (exit code 3)" in told
    assert "b\nleaf\nnot begun" in told
    assert "1 Failed" in [text.text for text in root.iter(f"{SVG}text")]


def test_dot_has_clusters_and_edges_between_them():
    """For those who have Graphviz."""
    main = dag("main", task("a", "inner"), task("b", depends="a"))
    made = dot(drawing(workflow(main, dag("inner", task("x")))), "wf")
    assert made.startswith('digraph "wf" {\n')
    assert 'subgraph "cluster wf.a" {' in made
    assert '"wf.a.x" -> "wf.b" [ltail="cluster wf.a"];' in made
    assert made.count("{") == made.count("}")


@pytest.mark.parametrize("spec", [None, 3, {"entrypoint": "x", "templates": [3, {"name": "x", "dag": 1}]}])
def test_what_is_malformed_is_left_out(spec):
    """A record that was damaged is drawn as far as it goes."""
    assert svg(drawing({"spec": spec}), "x")
