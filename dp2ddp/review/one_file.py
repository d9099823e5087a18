"""One file, read by every rule of the check."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.acceptance import Comments
from dp2ddp.codemod.facts.script import Script
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level, PlacedProblem


def problems_of(script: Script, rules: Sequence[CheckRule]) -> Iterator[tuple[CheckRule, Problem]]:
    """What the rules find in a script, without what a comment `# dp2ddp: ignore[CODE]` leaves out."""
    read, comments = DDPScript(script), Comments(script)
    for rule in rules:
        for problem in rule.find(read):
            lines = {getattr(problem.node, "lineno", 1), getattr(problem.node, "end_lineno", 1)}
            ignored = any(comments.ignoring(rule.code, line) for line in lines)
            if not ignored and not script.never_runs(problem.node) and not _is_expected(script, problem.node):
                yield rule, problem


def _is_expected(script: Script, node: ast.AST) -> bool:
    """Whether a test stands around it that wants it to fail: `with pytest.raises(RuntimeError):`."""
    blocks = (parent for parent in script.scopes.ancestors(node) if isinstance(parent, ast.With))
    calls = (item.context_expr for block in blocks for item in block.items)
    return any("raises" in script.text_of(call.func).lower() for call in calls if isinstance(call, ast.Call))


def check_file(script: Script, rules: Sequence[CheckRule]) -> list[PlacedProblem]:
    """The problems of one file, from top to bottom."""
    placed = [
        place_problem(
            script, problem.node, rule.code, rule.level, problem.message, problem.advice, bool(problem.fix)
        )
        for rule, problem in problems_of(script, rules)
    ]
    return sorted(placed, key=lambda problem: problem.order)


def place_problem(
    script: Script, node: ast.AST, code: str, level: Level, message: str, advice: str, fixable: bool = False
) -> PlacedProblem:
    """A problem at a node, with its place as a person looks for it."""
    source, positions = script.source, script.positions
    line = getattr(node, "lineno", 1)
    start = positions.line_starts[line - 1]
    place = source.place(line)
    return PlacedProblem(
        file=source.name,
        line=place.line,
        column=positions.span(node).start - start + 1,
        cell=place.cell,
        code=code,
        level=level,
        message=message,
        advice=advice,
        text=positions.text[start : positions.line_end(line)].strip(),
        fixable=fixable,
    )
