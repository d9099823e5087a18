"""How the script trains: forwards of the wrapped model, backwards, steps; enough to prove when DDP's reducer is right.

The reducer sums gradients once per backward of one forward (docs/semantics.md#module-called and below).
`Training.reducer_stopper` names the first thing that does not fit, or cannot be followed; None means that
everything was followed and fits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from dp2ddp.codemod.facts.aliases import find_forwards, is_returned, wrapped_names
from dp2ddp.codemod.facts.gradients import frozen_in_turn, touched_gradients
from dp2ddp.codemod.facts.iterations import (
    Region,
    conditions,
    exclude_each_other,
    is_inside,
    iteration_of,
    runs_without_gradient,
)
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.penalties import penalties
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import CallSite, Script, Variable
from dp2ddp.codemod.facts.uses import Stopper, find_uses

OPTIMIZER = re.compile(r"torch\.optim\.(?!lr_scheduler|swa_utils)")


@dataclass(frozen=True, eq=False)
class Training:
    """What is known about the training loop."""

    names: frozenset[Variable]  # every variable that may hold a wrapped model
    forwards: tuple[ast.Call, ...]  # calls of wrapped models
    backwards: tuple[ast.Call, ...]
    reducer_stopper: str | None

    @property
    def words(self) -> frozenset[str]:
        """The names of these variables alone, wherever they are bound."""
        return frozenset(name.strip(".") for _, name in self.names)


def find_training(script: Script, wraps: tuple[Wrap, ...], places: Places, reach: Reach) -> Training:
    names = wrapped_names(script, wraps)
    forwards = tuple(find_forwards(script, names))
    backwards = tuple(
        call.node for call in script.calls if call.method == "backward" and _is_main(places, call)
    )
    stoppers = chain(
        _about_wraps(script, wraps),
        touched_gradients(script, places, reach),
        find_uses(script, wraps, names),
        _about_loop(script, places, reach, wraps, forwards, backwards),
    )
    why = next((f"{stopper.why} ({script.where(stopper.node)})" for stopper in stoppers), None)
    return Training(names, forwards, backwards, why)


def _is_main(places: Places, call: CallSite) -> bool:
    return places.of(call.node) is ExecutionPlace.MAIN


def _about_wraps(script: Script, wraps: tuple[Wrap, ...]) -> Iterator[Stopper]:
    for wrap in wraps:
        if not wrap.names and not is_returned(script, wrap):
            yield Stopper("the wrapped model is not given a name", wrap.call.node)
        if any("." in name and not name.startswith("self.") or "[" in name for name in wrap.names):
            yield Stopper("a part of a model is wrapped, and its forward cannot be seen", wrap.call.node)


def _about_loop(
    script: Script,
    places: Places,
    reach: Reach,
    wraps: tuple[Wrap, ...],
    forwards: tuple[ast.Call, ...],
    backwards: tuple[ast.Call, ...],
) -> Iterator[Stopper]:
    """One forward, one backward, one zero_grad and one step in one turn of one loop."""
    if len(backwards) != 1:
        node = backwards[1] if backwards else script.tree
        yield Stopper(
            "there is no backward() in this file" if not backwards else "there are several backward()s", node
        )
        return
    backward = backwards[0]
    turn = iteration_of(script, backward)
    region = Region(script, turn)
    yield from _about_forwards(script, region, wraps, forwards, backward)
    yield from _about_steps(script, turn, backward)
    yield from frozen_in_turn(script, reach, region)
    yield from penalties(script, places, wraps, region, backward)


def _forwards_of_each(
    script: Script, wraps: tuple[Wrap, ...], forwards: tuple[ast.Call, ...]
) -> list[tuple[ast.Call, ...]]:
    """The forwards of each wrapped model: each has a reducer of its own. Wraps that share a name are one."""
    groups: list[tuple[frozenset[Variable], tuple[ast.Call, ...]]] = []
    for wrap in wraps:
        names = wrapped_names(script, (wrap,)) if len(wraps) > 1 else frozenset()
        own = set(find_forwards(script, names)) if len(wraps) > 1 else set(forwards)
        own_forwards = tuple(forward for forward in forwards if forward in own)
        for other in [group for group in groups if group[0] & names]:
            groups.remove(other)
            names, own_forwards = names | other[0], tuple(dict.fromkeys((*own_forwards, *other[1])))
        groups.append((names, own_forwards))
    return [own_forwards for _, own_forwards in groups]


def _about_forwards(
    script: Script,
    region: Region,
    wraps: tuple[Wrap, ...],
    forwards: tuple[ast.Call, ...],
    backward: ast.Call,
) -> Iterator[Stopper]:
    """Each wrapped model that runs in the turn runs once (two_nets_one_loss in docs/log.md)."""
    models = _forwards_of_each(script, wraps, forwards)
    running = [
        group
        for group in models
        if any(region.holds(item) and not runs_without_gradient(script, item) for item in group)
    ]
    for group in running or models[:1] or [()]:
        yield from _about_forwards_of_one(script, region, group, backward)


def _about_forwards_of_one(
    script: Script, region: Region, forwards: tuple[ast.Call, ...], backward: ast.Call
) -> Iterator[Stopper]:
    turn = region.turn
    graded = [forward for forward in forwards if not runs_without_gradient(script, forward)]
    mine = [forward for forward in graded if is_inside(script, forward, turn)]
    if (
        not mine
        or not exclude_each_other(script, mine)
        or any(iteration_of(script, planned) is not turn for planned in mine)
    ):
        why = "no forward" if not mine else f"{len(mine)} forwards" if len(mine) > 1 else "a loop of forwards"
        yield Stopper(f"{why} of the wrapped model for one backward()", backward)
    for forward in graded:
        if forward not in mine and region.holds(forward):
            yield Stopper("another forward of the wrapped model may run in the same step", forward)


def _about_steps(script: Script, turn: ast.AST, backward: ast.Call) -> Iterator[Stopper]:
    """Each backward starts from no gradients, and is followed by a step."""
    around = conditions(script, backward, turn)
    if around is None:
        yield Stopper("backward() runs under a condition", backward)
        return
    zeroed = _calls_in_turn(script, turn, "zero_grad")
    stepped = _calls_in_turn(script, turn, "step")
    for method, calls in (("zero_grad", zeroed), ("step", stepped)):
        if not calls:
            yield Stopper(f"{method}() is not called in the same turn as backward()", backward)
    for call in zeroed:
        when = conditions(script, call.node, turn)
        if when is None or any(node not in around for node in when):
            yield Stopper("zero_grad() runs under a condition (accumulation?)", call.node)
    for call in stepped:
        if call.node.args and script.scopes.definition(call.node.args[0]) is not None:
            yield Stopper("step() is given a closure", call.node)
    yield from _about_optimizers(script, zeroed, stepped)


def _calls_in_turn(script: Script, turn: ast.AST, method: str) -> list[CallSite]:
    return [
        call for call in script.calls if call.method == method and iteration_of(script, call.node) is turn
    ]


def _about_optimizers(script: Script, zeroed: list[CallSite], stepped: list[CallSite]) -> Iterator[Stopper]:
    """Every optimizer that steps clears its gradients, or the whole model's are cleared."""
    made = (node for node in script.nodes(ast.Assign) if isinstance(node, ast.Assign))
    optimizers = {
        script.text_of(target)
        for node in made
        for target in node.targets
        if OPTIMIZER.match(script.scopes.name(getattr(node.value, "func", None)) or "")
    }
    cleared = {_receiver(script, call) for call in zeroed}
    if cleared <= optimizers:
        for call in stepped:
            if _receiver(script, call) in optimizers - cleared:
                yield Stopper("this optimizer's gradients are not cleared in every turn", call.node)


def _receiver(script: Script, call: CallSite) -> str:
    return script.text_of(call.node.func.value) if isinstance(call.node.func, ast.Attribute) else ""
