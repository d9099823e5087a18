"""DDP102: devices that are named by an index."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, Remove, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.devices import DeviceIndex, home_index
from dp2ddp.codemod.facts.own_mode import in_own_function
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

# What a condition may be made of that goes away with what it decided: nothing happens when it is asked.
QUESTIONS = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.UnaryOp,
    ast.unaryop, ast.expr_context,
)  # fmt: skip
ASKING = {"builtins.len", "torch.cuda.is_available", "torch.cuda.device_count"}


class DeviceIndexed(Rule):
    """Use the rank's own device where the script names the first one.

    ## What it does
    `"cuda:0"` becomes `"cuda"`, `.cuda(0)` and `.cuda(args.gpu)` become `.cuda()`, `.to(0)` and `.to(gpu_ids[0])`
    become `.to("cuda")`, also under other names: `self.output_device = gpu`, `Trainer(net, args.gpu)`.
    `torch.cuda.set_device(...)` goes away: joining has set the device of the rank, and `cuda` means that one.

    ## Why
    With the index, every rank would put its model on the first GPU.

    ## Safety
    The index meant is that of `device_ids[0]`, where DataParallel keeps the model, or `output_device`. Any other
    index, or a second origin of one, may be model parallelism: it is a hazard.

    ## References
    torch.cuda.set_device; docs/semantics.md#first-device, docs/semantics.md#visible-devices,
    docs/semantics.md#device-ids.
    """

    code = "DDP102"
    name = "device-index"
    nodes = ("Arg", "Expr", "FormattedString", "If", "Integer", "SimpleString", "Subscript")
    examples = (
        Rewrites(
            before="""
                import torch
                device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
                net = torch.nn.DataParallel(net).cuda(0)
                x = x.cuda(0, non_blocking=True) + y.to(0)
            """,
            after="""
                import torch
                device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                net = torch.nn.DataParallel(net).cuda()
                x = x.cuda(non_blocking=True) + y.to("cuda")
            """,
        ),
        Rewrites(
            before="""
                import torch
                torch.cuda.set_device(args.gpu)
                net = torch.nn.DataParallel(net).cuda(args.gpu)
                x = x.to(f"cuda:{args.gpu}")
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net).cuda()
                x = x.to("cuda")
            """,
        ),
        Rewrites(
            before="""
                import torch
                if len(opt.gpu_ids) > 0:
                    torch.cuda.set_device(opt.gpu_ids[0])
                net = torch.nn.DataParallel(net, opt.gpu_ids)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net, opt.gpu_ids)
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net, output_device=1).cuda(0)
                y = y.cuda(1)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net, output_device=1).cuda()
                y = y.cuda()
            """,
        ),
        Rewrites(
            before="""
                import torch
                net.to(opt.gpu_ids[0])
                net = torch.nn.DataParallel(net, gpu_ids)
                y = y.cuda(self.gpu_ids[0])
            """,
            after="""
                import torch
                net.to("cuda")
                net = torch.nn.DataParallel(net, gpu_ids)
                y = y.cuda()
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net).cuda()
                state = torch.load("best.pt", map_location={"cuda:1": "cuda:0"})
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net).cuda()
                state = torch.load("best.pt", map_location={"cuda:1": "cuda"})
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net).cuda(args.gpu)
                class Trainer:
                    def __init__(self, device):
                        self.output_device = device
                    def step(self, x):
                        return net(x.cuda(self.output_device))
                Trainer(args.gpu)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net).cuda()
                class Trainer:
                    def __init__(self, device):
                        self.output_device = device
                    def step(self, x):
                        return net(x.cuda())
                Trainer(args.gpu)
            """,
        ),
        Flags(
            before="""
                import torch
                net = torch.nn.DataParallel(net).cuda(0)
                head = head.to("cuda:1")
            """,
            message="cuda:1",
        ),
        Untouched("""
            import torch
            import torch.distributed as dist
            def init(args):
                torch.cuda.set_device(args.rank % args.gpus)
                dist.init_process_group("nccl")
            if args.launcher != "none":
                init(args)
            net = torch.nn.DataParallel(net).cuda()
        """),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net).cuda().to(device)
            x = x.to(torch.float64).to("cuda", non_blocking=True)
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        home = home_index(facts.all_wraps)
        homes = {home, *(literal(wrap.output_device) for wrap in facts.all_wraps)}
        uses = [use for use in facts.devices if not in_own_function(facts.script, use.node)]
        others = {use.origin.text: use.text for use in uses if use.index is None and not use.origin.is_home}
        first = min(others, default=None)
        for use in uses:
            if use.origin.is_home:
                yield from _rewrite(facts, use)
            elif use.index is not None and use.index not in homes:
                yield _second_device(
                    use.node,
                    f"device cuda:{use.index} is not the one DataParallel keeps the model on (cuda:{home})",
                )
            elif use.index is None and first is not None and use.origin.text != first:
                yield _second_device(use.node, f"device {use.text} may be another one than {others[first]}")
            else:
                yield from _rewrite(facts, use)


def _second_device(node: ast.AST, message: str) -> Hazard:
    advice = "a rank has one device: if the model is spread over devices, keep this script on DataParallel"
    return Hazard(node, message, advice)


def _rewrite(facts: Facts, use: DeviceIndex) -> Iterator[Finding]:
    because = "the rank's own device"
    if use.form == "text":
        yield Replace(use.node, _quoted(facts, use.node), because)
    elif use.form == "cuda":
        assert use.call is not None
        yield DropArgument(use.node, use.call.node, because)
    elif use.form == "to":
        yield Replace(use.node, 'device="cuda"' if isinstance(use.node, ast.keyword) else '"cuda"', because)
    elif use.form == "set":
        yield from _drop_setting(facts, use)
    else:
        yield Replace(use.node, '"cuda"', because)  # torch.cuda.device("cuda") is the current one


def _drop_setting(facts: Facts, use: DeviceIndex) -> Iterator[Finding]:
    assert use.call is not None
    statement = facts.script.scopes.parents[use.call.node]
    if isinstance(statement, ast.Expr):
        yield Remove(_with_question(facts, statement), because="joining has set the rank's device")
    else:
        yield Hazard(use.call.node, "set_device() is part of an expression", "give it a line of its own")


def _with_question(facts: Facts, statement: ast.stmt) -> ast.stmt:
    """`if use_cuda: torch.cuda.set_device(0)` goes as a whole: a question that is asked for nothing else."""
    parent = facts.script.scopes.parents[statement]
    if not isinstance(parent, ast.If) or parent.body != [statement] or parent.orelse:
        return statement
    harmless = all(isinstance(node, QUESTIONS) or _only_asks(facts, node) for node in ast.walk(parent.test))
    above = facts.script.scopes.parents[parent]
    is_elif = isinstance(above, ast.If) and above.orelse == [parent]
    return _with_question(facts, parent) if harmless and not is_elif else statement


def _only_asks(facts: Facts, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and facts.script.scopes.name(node.func) in ASKING


def _quoted(facts: Facts, node: ast.AST) -> str:
    """ "cuda" in the quotes that the script uses there."""
    text = facts.script.text(node)
    quote = "'" if text.lstrip("fFrRbBuU(").startswith("'") else '"'
    return f"{quote}cuda{quote}"
