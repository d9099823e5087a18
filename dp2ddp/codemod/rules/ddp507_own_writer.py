"""DDP507: classes of the script's own that are derived from what writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import writing_base
from dp2ddp.codemod.facts.handed_on import is_helper
from dp2ddp.codemod.facts.own_writers import MAKES, OwnClass, own_class, reads_of_answers
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class OwnWriter(Rule):
    """Ask about classes that are derived from what writes.

    ## What it does
    An object of a class like `class Log(logging.FileHandler)` is made by rank 0 alone, as one of its base is: DDP501
    and DDP504 see to that, through bases of bases and over files. A hazard remains where that would not do: a method
    does something that every rank would have to come to, it is asked for what rank 0's object alone knows, it is
    handed on to be called by others, or nothing says whether it writes.

    ## Why
    W ranks that write one file tear it, or write every line W times.

    ## Safety
    What an object can say is what its own methods give back and what they keep in it; whose object is asked is told by
    the name of the method alone.

    ## References
    docs/semantics.md#printing.
    """

    code = "DDP507"
    name = "own-writer"
    nodes = ("Attribute", "Call", "Name")
    examples = (
        Flags(
            before="""
                import io
                import torch
                class File(io.FileIO):
                    def __init__(self, path, mode="r"):
                        super().__init__(path, mode)
                net = torch.nn.DataParallel(net)
                file = File("log.bin", "w")
            """,
            message="`File` is derived from io.FileIO",
        ),
        Flags(
            before="""
                import logging
                import torch
                class Log(logging.FileHandler):
                    def emit(self, record):
                        with open("last.txt", "w") as file:
                            file.write(record.getMessage())
                net = torch.nn.DataParallel(net)
                logging.getLogger().addHandler(Log("all.txt"))
            """,
            message="which rank 0 alone has",
        ),
        Flags(
            before="""
                import logging
                import torch
                class Log(logging.FileHandler):
                    def count(self):
                        return self.lines
                net = torch.nn.DataParallel(net)
                log = Log("all.txt")
                if log.count() > 3:
                    net.eval()
            """,
            message="is asked for `count`",
        ),
        Flags(
            before="""
                import logging
                import torch
                class Log(logging.FileHandler):
                    pass
                net = torch.nn.DataParallel(net)
                kinds = {"file": Log}
            """,
            message="is handed on",
        ),
        Untouched(
            """
                import torch
                import zipfile
                class Images(zipfile.ZipFile):
                    def __init__(self, path):
                        super().__init__(path, "r")
                net = torch.nn.DataParallel(net)
                images = Images("train.zip")
            """
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for effect in facts.effects:
            if effect.kind == "own writer" and effect.made:
                yield Hazard(
                    effect.call.node, f"`{effect.made.name}` is derived from {effect.call.name}", _OBJECT
                )
        for kind, made in _classes(facts):
            if kind != "tracker":  # whose methods rank 0 runs alone
                yield from _done_in_methods(facts, made)
            for read in reads_of_answers(facts.script, made):
                text = f"`{made.name}`, which rank 0 alone has, is asked for `{read.attr}`"
                yield Hazard(read, text, "keep what you ask for in a variable of the script")
        if any(_has_writers(script, facts) for script in facts.modules.scripts):
            yield from _handed_on(facts)


def _classes(facts: Facts) -> Iterator[tuple[str, OwnClass]]:
    """The classes that objects are made of, each once."""
    seen: set[ast.ClassDef] = set()
    for effect in facts.own_objects:
        if effect.made and effect.made.family[0][1] not in seen:
            seen.add(effect.made.family[0][1])
            yield effect.kind, effect.made


def _done_in_methods(facts: Facts, made: OwnClass) -> Iterator[Finding]:
    """Effects in the methods of an object that the other ranks do not have: rank 0 would wait for them."""
    methods = {part for home, part in made.methods if home is facts.script and part.name not in MAKES}
    for effect in facts.effects:
        if methods.intersection(facts.script.scopes.ancestors(effect.call.node)):
            text = (
                f"{ast.unparse(effect.call.node.func)}() in a method of `{made.name}`, which rank 0 alone has"
            )
            yield Hazard(effect.call.node, text, "do it outside of the class")


def _has_writers(script: Script, facts: Facts) -> bool:
    """Whether a class of a file is derived from what writes: most projects have none."""
    classes = (own_class(facts.modules, script, node) for node in script.nodes(ast.ClassDef))
    return any(made and writing_base(made) for made in classes)


def _handed_on(facts: Facts) -> Iterator[Finding]:
    """`{"file": Log}`, `partial(Log, path)`: whoever calls it makes an object on every rank."""
    for node in facts.script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if not isinstance(node.ctx, ast.Load) or not _is_value(facts, node):
            continue
        meant = own_class(facts.modules, facts.script, node)
        base = writing_base(meant) if meant else None
        if meant and base:
            yield Hazard(node, f"`{meant.name}`, which is derived from {base}, is handed on", _HANDED_ON)


def _is_value(facts: Facts, node: ast.expr) -> bool:
    """Whether somebody else may call it: it stands in a display, is an argument, or is given back."""
    scopes = facts.script.scopes
    parent, inside = scopes.parents[node], node
    while isinstance(parent, (ast.keyword, ast.Dict, ast.List, ast.Tuple)):
        parent, inside = scopes.parents[parent], parent  # type: ignore[assignment]  # a keyword is no expression
    if isinstance(parent, ast.Call):
        given = [facts.script.text_of(argument) for argument in (parent.func, *parent.args)]
        names_kind = scopes.name(parent.func) in (
            "builtins.isinstance",
            "builtins.issubclass",
            "builtins.super",
        )
        return parent.func is not node and not names_kind and not any(map(is_helper, given))
    is_type = isinstance(parent, ast.ClassDef) or isinstance(parent, ast.Subscript) and parent.slice is inside
    return isinstance(parent, ast.Return) or inside is not node and not is_type


_OBJECT = "open it here with open(path, mode), which is converted, or let the class say its mode itself"
_HANDED_ON = "call it here, `object = Class(path)`, and hand the object on"
