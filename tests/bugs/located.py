"""Where ``minigrad prove --locate`` says that seeded bugs of the strategies are, and whether it is right.

    python -m tests.bugs.located              all bugs of the strategies, from the project's root
    python -m tests.bugs.located ring zb      those with "ring" or "zb" in their name or place

Each bug stands in a world of its own, in which the layouts of ``tests/backends/proof_layouts.py`` that run
its definition take a step. Where a proof sees that this step is wrong, the first tensor that differs must lie
where the definition ran: a profile function notes each call of it between the tensors that are recorded. The
exit status is 1 where fewer than nine of ten bugs that a proof sees are located rightly.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.backends import proof_layouts
from tests.bugs.bug import Bug
from tests.bugs.definition import Definition, nodes_of, span_of
from tests.bugs.suite import PARTS
from tests.bugs.world import World, file_of, world_without_bugs

STRATEGIES = tuple(f"backends.{name}" for name in (
    "data_parallel.", "model_parallel.", "pipeline.", "sequence_parallel.", "expert_parallel.",
    "comm.differentiable", "stack",
))  # fmt: skip
"""The modules of strategies, by the beginning of their names."""
MOST = 6
"""The most layouts on which a bug is located."""
SHARE = 0.9
"""The least share of the bugs that are located, of those that a proof sees."""


class Run(NamedTuple):
    """A call of the definition: the functions around it, and the recorded layer that it is in."""

    around: frozenset[str]
    layer: str | None


Event = tuple[str, tuple[str, int, str]]
"""A tensor that was recorded: its direction and its port."""


class Trace:
    """What ran on each rank, in this order, while a layout was located."""

    def __init__(self, file: str, lines: range):
        self.file, self.lines = file, lines
        self.items: dict[int, list[Event | Run]] = {}
        self.placement: list[Run] = []
        self.classes: dict[str, set[str]] = {}
        self.enclosed: set[Event] = set()  # recorded while a call of the definition is open

    def watch(self, rank: int) -> Callable[..., None]:
        """The profile function of a rank's thread."""
        items: list[Event | Run] = []
        self.items[rank], recordings = items, list[int]()

        def profile(frame: Any, event: str, _: Any) -> None:
            if event != "call":
                return
            code = frame.f_code
            if code.co_filename.endswith("recording.py"):
                local = frame.f_locals
                if code.co_name == "note":
                    if id(local["self"]) not in recordings:  # the serial run's, then the strategy's
                        recordings.append(id(local["self"]))
                        before = [n for n, item in enumerate(items) if not isinstance(item, Run)]
                        del items[: before[-1] + 1 if before else 0]
                    tensor: Event = local["direction"], tuple(local["record"].port)
                    items.append(tensor)
                    if self.encloses(frame):
                        self.enclosed.add(tensor)
                elif code.co_name == "name_of":
                    name = frame.f_back.f_locals.get("self").names.get(id(local["module"]), [None])
                    kinds = {kind.__name__ for kind in type(local["module"]).__mro__}
                    for one in name:
                        self.classes.setdefault(one, set()).update(kinds)
            elif self.is_planted(frame):
                run = run_of(frame)
                items.append(run)
                if "place" in run.around:
                    self.placement.append(run)

        return profile

    def is_planted(self, frame: Any) -> bool:
        return frame.f_code.co_filename == self.file and frame.f_code.co_firstlineno in self.lines

    def encloses(self, frame: Any) -> bool:
        while frame is not None and not self.is_planted(frame):
            frame = frame.f_back
        return frame is not None

    def before(self, event: Event, agreed: str | None) -> Iterator[Run]:
        """The calls before a tensor, on any rank, after the one that agreed, or that was recorded last."""
        for items in self.items.values():
            for n in (n for n, item in enumerate(items) if item == event):
                events = [m for m in range(n) if not isinstance(items[m], Run)]
                start = next(
                    (m for m in reversed(events) if words(items[m]) == agreed), max(events, default=-1)
                )
                yield from (item for item in items[start + 1 : n] if isinstance(item, Run))

    def after(self, agreed: str | None) -> Iterator[Run]:
        """The calls between the tensor that agreed, on any rank, and the next one."""
        for items in self.items.values():
            here = False
            for item in items:
                if not isinstance(item, Run):
                    here = words(item) == agreed
                elif here:
                    yield item


def run_of(frame: Any) -> Run:
    around, layer, outer = set[str](), None, frame
    while outer is not None:
        around.add(outer.f_code.co_name)
        if outer.f_code.co_name == "call" and outer.f_code.co_filename.endswith("recording.py"):
            layer = layer or outer.f_locals.get("name")
        outer = outer.f_back
    return Run(frozenset(around), layer)


REDUCTION = {"finish", "on_grad", "full_gradients", "full_parameters", "full_state"}


def is_right(first: Any, trace: Trace, where: Definition) -> bool:
    """Whether the definition ran where the first difference is said to be."""
    runs = [item for items in trace.items.values() for item in items if isinstance(item, Run)]
    outside = [run for run in runs if run.layer is None]
    owner = first.name if first.direction in ("forward", "backward") else first.name.rpartition(".")[0]
    if "." in where.name and where.name.partition(".")[0] in trace.classes.get(owner, ()):
        return True  # the layer's own class, or one from which it derives
    if any(run.layer == owner for run in runs):
        return True  # the layer runs it
    if first.what.startswith("the samples"):
        return any("shard" in run.around for run in runs)
    if first.direction in ("forward", "backward"):
        if first.what.startswith("the loss"):
            return any(run.around & {"loss", "loss_weight", "forward_backward", "work"} for run in outside)
        events = {item for items in trace.items.values() for item in items if not isinstance(item, Run)}
        here = [e for e in events if e[0] == first.direction and e[1][::2] == (first.name, first.end)]
        between = [run for event in here for run in trace.before(event, first.agreed)]
        between += trace.after(first.agreed)
        around = first.what.startswith("what leads") and any(event in trace.enclosed for event in here)
        return around or any(not run.around & REDUCTION for run in between)
    if first.direction == "placement":
        return bool(trace.placement)
    if first.direction == "loss":
        return bool(outside)
    if first.direction == "parameters" and "before" in first.what:
        return any("forward_backward" in run.around for run in outside)
    names = REDUCTION if first.direction != "update" else {"update", "finalize", "place"}
    return any(run.around & names for run in runs)


def words(event: Event | Run) -> str:
    """An event as ``FirstDifference.agreed`` names it."""
    assert not isinstance(event, Run)
    direction, (layer, call, end) = event
    port = f"{end} of {f'layer {layer}' if layer else 'the model'}" + (f", call {call + 1}" if call else "")
    return f"gradient of the {port}" if direction == "backward" else port


class Outcome(NamedTuple):
    """What became of a bug on the layouts: how many saw it, and where it was located in the one shown."""

    kind: str  # "right", "wrong", "not located", "crash", "not run" or "unseen"
    layout: str
    says: str


def outcome(bug: Bug, layouts: Sequence[str]) -> list[Outcome]:
    """An outcome for each layout on which the bug shows."""
    where = bug.definition
    world = World({where.module: [(where, bug.right, bug.wrong)]})
    text = world.texts[where.module]
    (start, end), *_ = (span_of(node) for name, node in nodes_of(text) if name == where.name)
    outcomes, module = list[Outcome](), world.load(proof_layouts.__name__)
    for name in layouts:
        if sum(one.kind != "crash" for one in outcomes) == MOST:
            break
        layout = module.LAYOUTS[name]
        try:
            if not layout.differs():
                continue
            trace = Trace(f"{file_of(where.module)} (changed)", range(start + 1, end + 1))
            located = layout.locate(trace.watch)
        except Exception as error:
            outcomes.append(Outcome("crash", name, f"{type(error).__name__}: {error}".split("\n")[0]))
            continue
        if (first := located.first) is None:
            outcomes.append(Outcome("not located", name, f"{located.compared} tensors agree"))
        else:
            right = is_right(first, trace, where)
            outcomes.append(Outcome("right" if right else "wrong", name, first.what))
    return outcomes


def layouts_by_function() -> dict[tuple[str, int], set[str]]:
    """For each function, by its file and first line, the layouts that run it."""
    world, layouts = world_without_bugs(), dict[tuple[str, int], set[str]]()
    for name, layout in world.load(proof_layouts.__name__).LAYOUTS.items():

        def watch(_: int, name: str = name) -> Callable[..., None]:
            def profile(frame: Any, event: str, _: Any) -> None:
                if event == "call" and "backends" in frame.f_code.co_filename:
                    layouts.setdefault((frame.f_code.co_filename, frame.f_code.co_firstlineno), set()).add(
                        name
                    )

            return profile

        layout.locate(watch)
    return layouts


def layouts_of(where: Definition, functions: Mapping[tuple[str, int], set[str]]) -> list[str]:
    """The layouts that run a definition; those that run its module where it is no function."""
    file = file_of(where.module)
    (start, end), *_ = (
        span_of(node) for name, node in nodes_of(file.read_text(encoding="utf-8")) if name == where.name
    )
    of_file = {line: names for (path, line), names in functions.items() if path == str(file)}
    running = set[str]().union(*(of for line, of in of_file.items() if start < line <= end))
    return sorted(running or set[str]().union(*of_file.values()))


def main(chosen: list[str]) -> int:
    warnings.simplefilter("ignore")
    console = Console(width=None if sys.stdout.isatty() else 200)
    functions = layouts_by_function()
    table, counts = Table("bug", "where", "", "on", "first difference"), dict[str, int]()
    for bugs in PARTS.values():
        for bug in bugs:
            if not f"{bug.definition.module}.".startswith(STRATEGIES):
                continue
            if chosen and not any(word in f"{bug.name} {bug.where}" for word in chosen):
                continue
            layouts = layouts_of(bug.definition, functions)
            outcomes = outcome(bug, layouts)
            located = [o for o in outcomes if o.kind in ("right", "wrong", "not located")]
            bad = [o for o in located if o.kind != "right"]
            shown = (bad or located or outcomes or [Outcome("unseen" if layouts else "not run", "", "")])[0]
            counts[shown.kind] = counts.get(shown.kind, 0) + 1
            share = f"{len(located) - len(bad)}/{len(located)} {shown.layout}" if located else shown.layout
            table.add_row(bug.name, bug.where, shown.kind, share, escape(shown.says[:90]))
    console.print(table)
    visible = sum(counts.get(kind, 0) for kind in ("right", "wrong", "not located"))
    right = counts.get("right", 0)
    console.print(f"{right} of {visible} bugs that a proof sees are located; {counts}")
    return int(right < SHARE * visible)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
