"""Whether ranks may meet at a line: only in the main flow of the script, which every rank walks."""

from __future__ import annotations

import ast

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace

ADVICE = {
    ExecutionPlace.FORWARD: "move it out of the forward: a rank without rows never gets there, and the others would "
    "wait",
    ExecutionPlace.WORKER: "do it once before training: worker processes of every rank would do it at the same time",
    ExecutionPlace.THREAD: "do it in the main flow of the script: threads of different ranks do not meet in order",
    ExecutionPlace.MAIN: "",
}


def only_in_main_flow(facts: Facts, node: ast.AST, what: str) -> Hazard | None:
    """A hazard if the node is not in the main flow."""
    place = facts.places.of(node)
    if place is ExecutionPlace.MAIN:
        return None
    return Hazard(node, f"{what} in {place.value}", ADVICE[place])
