"""DDP714: parameters that are trained beside the wrapped model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.training import OPTIMIZER
from dp2ddp.codemod.idiomatic.values import origins
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

GIVES = {"parameters", "named_parameters"}


class UnwrappedParameters(Rule):
    """Say where an optimizer steps what no wrapper synchronises.

    ## What it does
    A hazard where an optimizer is given parameters of anything but a wrapped model, or parameters that cannot be seen.

    ## Why
    DistributedDataParallel averages the gradients of the module that it wraps. A criterion with centres, or a second
    model, would have other weights on each rank after one step.

    ## Safety
    Parameters of the model itself, before it is wrapped, and of its parts are those of the wrapper.

    ## References
    docs/causes.md, partly-synchronised; docs/idiomatic.md.
    """

    code = "DDP714"
    name = "idiomatic-unwrapped-parameters"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                centres = Centres()
                optimizer = torch.optim.SGD([*net.parameters(), *centres.parameters()], lr=0.1)
            """,
            message="centres",
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                optimizer = torch.optim.SGD(groups(), lr=0.1)
            """,
            message="cannot be seen",
        ),
        Untouched("""
            import torch
            weights = [p for p in net.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD([{"params": weights}, {"params": net.head.parameters()}], lr=0.1)
            net = torch.nn.DataParallel(net)
        """),
        Untouched("""
            import torch
            model = torch.nn.DataParallel(model)
            net = model.module if isinstance(model, torch.nn.DataParallel) else model
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        """),
        Flags(
            before="""
                import torch
                other = Other()
                model = torch.nn.DataParallel(model)
                net = other if isinstance(model, torch.nn.DataParallel) else model
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            """,
            message="parameters of `net`",
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        for call in facts.script.calls:
            given = call.argument(0, "params")
            if not OPTIMIZER.match(call.name or "") or given is None:
                continue
            owners = list(_owners(facts, given, 6))
            other = next((owner for owner in owners if not _is_wrapped(facts, owner)), None)
            if other is not None or not owners:
                parameters = (
                    f"parameters of `{facts.program.text_of(other)}`"
                    if other is not None
                    else "parameters that cannot be seen"
                )
                yield Hazard(
                    call.node,
                    f"the optimizer steps {parameters}, whose gradients nobody averages over the ranks",
                    "put them into the wrapped model, or take the exact style",
                )


def _owners(facts: Facts, node: ast.AST, depth: int) -> Iterator[ast.expr]:
    """What `.parameters()` is asked of, within an expression and the names in it."""
    inside = list(ast.walk(node))
    owners = {id(call.func.value): call.func.value for call in inside if _asks(call)}  # type: ignore[attr-defined]
    yield from owners.values()
    roots = {id(each) for owner in owners.values() for each in ast.walk(owner)}
    for name in inside:
        if depth and isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and id(name) not in roots:
            for value in (*origins(facts, name), *_gone_through(facts, name)):
                if value is not name:
                    yield from _owners(facts, value, depth - 1)


def _gone_through(facts: Facts, name: ast.Name) -> Iterator[ast.expr]:
    """What the loops go through that give a name its value: `for key, value in net.named_parameters():`."""
    program = facts.program
    variable = program.variable(name)
    for loop in program.nodes(ast.For, ast.comprehension):
        assert isinstance(loop, (ast.For, ast.comprehension))
        targets = (
            node for node in ast.walk(loop.target) if isinstance(node, ast.Name) and node.id == name.id
        )
        if any(program.variable(target) == variable for target in targets):
            yield loop.iter


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GIVES


def _is_wrapped(facts: Facts, owner: ast.expr, depth: int = 6) -> bool:
    """The wrapper, the model that it is made of, or a part of one of them; also by another name for one."""
    program = facts.program
    modules = [wrap.module for wrap in facts.all_wraps if wrap.module is not None]
    texts = {program.text_of(module) for module in modules}
    variables = {
        program.variable(module) for module in modules if isinstance(module, (ast.Name, ast.Attribute))
    }
    while True:
        if program.variable(owner) in facts.training.names | variables or program.text_of(owner) in texts:
            return True
        if isinstance(owner, (ast.Attribute, ast.Subscript)):
            owner = owner.value
            continue
        if isinstance(owner, ast.IfExp):  # `model.module if isinstance(model, DataParallel) else model`
            return depth > 0 and all(
                _is_wrapped(facts, each, depth - 1) for each in (owner.body, owner.orelse)
            )
        given = [origin for origin in origins(facts, owner) if origin is not owner]
        return bool(given) and all(
            _is_made_for_wrap(facts, value) or (depth > 0 and _is_wrapped(facts, value, depth - 1))
            for value in given
        )


def _is_made_for_wrap(facts: Facts, made: ast.expr) -> bool:
    """Another name for what is wrapped: the call that makes it is the same."""
    modules = (wrap.module for wrap in facts.all_wraps if wrap.module is not None)
    sources = {id(origin) for module in modules for origin in origins(facts, module)}
    return id(made) in sources or any(made is wrap.call.node for wrap in facts.all_wraps)
