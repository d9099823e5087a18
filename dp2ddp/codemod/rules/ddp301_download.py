"""DDP301: data sets that download themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import downloads
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

# Training and test samples come together (torchvision 0.10 to 0.29).
WHOLE_ARCHIVES = of("torchvision.datasets", "CIFAR10 CIFAR100 MNIST FashionMNIST KMNIST")


class Download(Rule):
    """Let rank 0 download first.

    ## What it does
    A call with `download=True` (or a `download=` that depends) becomes `rank_zero_first(f, ..., download=True)`.

    ## Why
    All ranks would download and unpack into one folder at the same time.

    ## Safety
    Rank 0 makes its data set; when that is done, the others make theirs and find the files. Classes of the
    script itself are left alone: what they write is converted where it is written. A second call for the same
    archive (CIFAR10's and MNIST's training and test samples come in one) in the same folder finds it, and stays.

    ## References
    docs/semantics.md#downloads.
    """

    code = "DDP301"
    name = "download"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = datasets.CIFAR10("data", train=True, download=True)
            """,
            after="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = rank_zero_first(datasets.CIFAR10, "data", train=True, download=True)
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = datasets.CIFAR10("data", train=True, download=True)
                test = datasets.CIFAR10("data", train=False, download=True)
                more = datasets.SVHN("data", split="test", download=True)
            """,
            after="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                train = rank_zero_first(datasets.CIFAR10, "data", train=True, download=True)
                test = datasets.CIFAR10("data", train=False, download=True)
                more = rank_zero_first(datasets.SVHN, "data", split="test", download=True)
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                if big:
                    train = datasets.CIFAR10("data", train=True, download=True)
                test = datasets.CIFAR10("data", train=False, download=True)
                digits = datasets.MNIST(folder, download=True)
                folder = "other"
                others = datasets.MNIST(folder, download=True)
            """,
            after="""
                import torch
                from torchvision import datasets
                net = torch.nn.DataParallel(net)
                if big:
                    train = rank_zero_first(datasets.CIFAR10, "data", train=True, download=True)
                test = rank_zero_first(datasets.CIFAR10, "data", train=False, download=True)
                digits = rank_zero_first(datasets.MNIST, folder, download=True)
                folder = "other"
                others = rank_zero_first(datasets.MNIST, folder, download=True)
            """,
        ),
        Untouched("""
            import torch
            from torchvision import datasets
            net = torch.nn.DataParallel(net)
            train = datasets.CIFAR10("data", train=True, download=False)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        because = "rank 0 downloads, then the others find the files"
        waited: list[CallSite] = []
        for call in downloads(facts.script):
            own = isinstance(facts.script.scopes.definition(call.node.func), ast.ClassDef)
            is_super = ast.unparse(call.node.func).startswith("super(")
            if own or is_super or facts.places.of(call.node) is not ExecutionPlace.MAIN:
                continue
            if any(_is_there_already(facts.script, call, earlier) for earlier in waited):
                continue
            waited.append(call)
            helper = strategy.helper("rank_zero_first")
            yield PassTo(call.node, facts.names.helper(helper), because)
            yield Lift(helper, because)


def _is_there_already(script: Script, call: CallSite, earlier: CallSite) -> bool:
    """Whether all ranks come by an earlier call that has downloaded the same archive into the same folder."""
    statement, root = script.scopes.statement(earlier.node), call.argument(0, "root")
    before = earlier.argument(0, "root")
    if call.name not in WHOLE_ARCHIVES or call.name != earlier.name or root is None or before is None:
        return False
    if script.text_of(root) != script.text_of(before) or _may_change(script, root, statement, call.node):
        return False
    is_always_made = isinstance(statement, ast.Assign) and statement.value is earlier.node
    return is_always_made and any(
        statement in body and later in body and body.index(statement) < body.index(later)
        for later in (call.node, *script.scopes.ancestors(call.node))
        for body in _blocks(script.scopes.parents.get(later))
    )


def _blocks(node: ast.AST | None) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(node, name, None), list):
            yield block


def _may_change(script: Script, root: ast.expr, first: ast.stmt, last: ast.expr) -> bool:
    """Whether the folder may be another one at the second call: then both wait."""
    if isinstance(root, ast.Constant):
        return False
    if not isinstance(root, (ast.Name, ast.Attribute)):
        return True
    return any(
        not isinstance(mention.ctx, ast.Load) and first.lineno <= mention.lineno <= last.lineno
        for mention in script.by_word[root.id if isinstance(root, ast.Name) else root.attr]
    )
