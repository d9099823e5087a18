"""DDP702: the wrap itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.idiomatic.harmless import Harmless
from dp2ddp.codemod.idiomatic.losses import CLASSES, before_moves
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.idiomatic.values import origins
from dp2ddp.codemod.idiomatic.wrapping import (
    Odd,
    may_leave_out,
    move_of,
    needs_cuda,
    odd_conditions,
    plain_wraps,
)
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class Wrapped(Rule):
    """Wrap the model in DistributedDataParallel, on the rank's own GPU.

    ## What it does
    `nn.DataParallel(net, device_ids=..., output_device=...)` becomes `DDP(net, device_ids=[local_rank])`. A model that
    is not on its device yet is moved first: `DataParallel(net).cuda()` becomes `DDP(net.cuda(), ...)`. Where a layer of
    the model is made and used nowhere, `find_unused_parameters=True` is added.

    ## Why
    DistributedDataParallel averages the gradients of all ranks; it wants the model on its GPU when it is made.

    ## Safety
    `.module`, and the `module.` in checkpoints, stay. Where the wrap stands under a condition that is neither about
    CUDA nor about the number of GPUs (`if args.parallel:`), ranks could train apart, and nobody would see it: an
    assertion stops them, and where none can be written it is a hazard. So is a `dim`.
    A parameter that a step leaves out makes DistributedDataParallel raise an error that names the cure.

    ## References
    torch/nn/parallel/distributed.py; docs/semantics.md#gradient-scale; docs/idiomatic.md.
    """

    code = "DDP702"
    name = "idiomatic-wrap"
    nodes = ("Attribute", "BaseStatement", "Call", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net, device_ids=[0, 1]).cuda()
            """,
            after="""
                import torch
                net = DDP(net.cuda(), device_ids=[local_rank])
            """,
        ),
        Rewrites(
            before="""
                import torch
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = net.to(device)
                net = torch.nn.DataParallel(net)
            """,
            after="""
                import torch
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = net.to(device)
                net = DDP(net, device_ids=[local_rank] if torch.cuda.is_available() else None)
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = Net().cuda()
                if args.parallel:
                    net = torch.nn.DataParallel(net)
            """,
            after="""
                import torch
                net = Net().cuda()
                assert args.parallel, "ranks that are not wrapped would train apart"
                if args.parallel:
                    net = DDP(net, device_ids=[local_rank])
            """,
        ),
        Flags(
            before="""
                import torch
                net = Net().cuda()
                net = torch.nn.DataParallel(net) if args.parallel else net
            """,
            message="under a condition",
        ),
        Flags("import torch\nnet = torch.nn.DataParallel(net, dim=1)", message="dim"),
        Untouched("import torch\nnet = net.cuda()"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        wraps = plain_wraps(facts)
        for wrap in wraps:
            if wrap.dim_value != 0:
                advice = "take the exact style: it splits at any dimension"
                yield Hazard(
                    wrap.call.node, "the batch is cut at another dimension than the first (dim=)", advice
                )
                continue
            if wrap.module is not None and _has_no_parameters(facts, wrap.module):
                because = "it has no parameters, so there is nothing to average"
                yield Replace(wrap.call.node, "{module}", because, {"module": wrap.module})
                continue
            odd = odd_conditions(facts, facts.script, wrap)
            if odd is None or len(facts.all_wraps) > 1 and odd:
                yield _conditional(facts, odd[0].test if odd else wrap.call.node)
                continue
            for condition in odd:
                yield from _insist(facts, condition)
            yield from _convert(facts, wrap)


def _has_no_parameters(facts: Facts, module: ast.expr) -> bool:
    """A loss of torch, or one of the project with nothing to train: DistributedDataParallel would refuse it."""
    values = origins(facts, module)
    makers = [before_moves(origin).func if isinstance(origin, ast.Call) else origin for origin in values]
    return bool(values) and all(_makes_no_parameters(facts, maker) for maker in makers)


def _makes_no_parameters(facts: Facts, maker: ast.expr) -> bool:
    program = facts.program
    if program.scopes.name(maker) in CLASSES:
        return True
    owner = program.scopes.definition(maker)
    if not isinstance(owner, ast.ClassDef) or [program.scopes.name(base) for base in owner.bases] != [
        "torch.nn.Module"
    ]:
        return False
    calls = (node for node in ast.walk(owner) if isinstance(node, ast.Call))
    return not any(_may_make_parameters(program.scopes.name(call.func), call) for call in calls)


def _may_make_parameters(name: str | None, call: ast.Call) -> bool:
    """Whether a call may make a layer or a parameter: it is neither torch's computing nor a method of a tensor."""
    if name is None:
        return not isinstance(call.func, ast.Attribute) or call.func.attr.startswith(
            ("register", "add_module")
        )
    if name.startswith("torch.nn."):
        return name not in CLASSES and not name.startswith("torch.nn.functional.")
    return not name.startswith(("torch.", "builtins."))


def _insist(facts: Facts, odd: Odd) -> Iterator[Finding]:
    """`assert args.parallel`: ranks that are not wrapped would train apart, and nobody would see it."""
    script, parent = facts.script, facts.script.scopes.parents[odd.statement]
    if (
        isinstance(parent, ast.If)
        and parent.orelse == [odd.statement]
        or not Harmless(facts).is_harmless(script, odd.test)
    ):
        yield _conditional(facts, odd.test)
        return
    test = script.text(odd.test)
    loose = isinstance(odd.test, (ast.BoolOp, ast.IfExp, ast.Compare, ast.Lambda))
    code = f"assert {test}" if odd.in_body else f"assert not ({test})" if loose else f"assert not {test}"
    yield InsertBefore(
        odd.statement,
        f'{code}, "ranks that are not wrapped would train apart"',
        "where the model would not be wrapped, the ranks stop",
        apart=False,
    )


def _conditional(facts: Facts, test: ast.AST) -> Hazard:
    text = " ".join(facts.script.text_of(test).split())
    return Hazard(
        test,
        f"the model is wrapped under a condition, `{text}`: where it does not hold, ranks would train apart",
        "wrap it always (a run of one rank is one device), or take the exact style",
    )


def _convert(facts: Facts, wrap: Wrap) -> Iterator[Finding]:
    words, call, move = ProcessNames(facts), wrap.call.node, move_of(facts.script, wrap)
    because = "each rank trains on its own GPU; gradients are averaged over the ranks"
    index = f"[{words.local_rank}]"
    ids = index if needs_cuda(facts) else f"{index} if torch.cuda.is_available() else None"
    unused = may_leave_out(facts, wrap)
    yield words.wrapper_import(because)
    assert wrap.module is not None
    if move.chain is not None:
        more = ", find_unused_parameters=True" if unused else ""
        code = f"{words.wrapper}({{module}}{move.text}, device_ids={ids}{more})"
        yield Replace(move.chain, code, because, {"module": wrap.module})
        return
    yield Replace(call.func, words.wrapper, because)
    if move.text:
        yield Replace(
            wrap.module,
            f"{{module}}{move.text}",
            "on its device before it is wrapped",
            {"module": wrap.module},
        )
    options = [keyword for keyword in call.keywords if keyword.arg in ("device_ids", "output_device", "dim")]
    given: list[ast.expr | ast.keyword] = [*call.args[1:], *options]
    for option in given:
        yield DropArgument(option, call, "torchrun starts one process for each GPU")
    yield SetArgument(call, "device_ids", ids, because)
    if unused:
        yield SetArgument(
            call, "find_unused_parameters", "True", "a layer of the model is made and used nowhere"
        )
