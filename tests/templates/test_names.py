"""Helpers of several parts end in one file: a name stands for one thing in all of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PARTS = Path(__file__).parents[2] / "templates"


def top_level_names(tree: ast.Module) -> set[str]:
    names = {each.name for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_no_two_parts_define_the_same_name() -> None:
    homes = defaultdict(list)
    for part in sorted(PARTS.glob("*.py")):
        for name in top_level_names(ast.parse(part.read_text(encoding="utf-8"))):
            homes[name].append(part.name)
    assert homes["init_distributed"] == ["ranks.py"]
    assert {name: parts for name, parts in homes.items() if len(parts) > 1} == {}
