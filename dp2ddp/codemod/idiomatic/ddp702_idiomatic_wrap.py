"""DDP702: the wrap."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, InsertAfter, InsertBefore, Remove, Replace, SetArgument
from dp2ddp.codemod.idiomatic.ddp711_idiomatic_by_hand import overrides, patches_parts
from dp2ddp.codemod.idiomatic.draws import is_seeded
from dp2ddp.codemod.idiomatic.looking import is_elif, last_word
from dp2ddp.codemod.idiomatic.models import (
    WRAP,
    ModelWrap,
    asks_devices,
    changed_behind,
    may_be_frozen,
    may_leave_out,
    move_of,
    runs_often,
    trains_nothing,
    wraps_of,
)
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, names_cuda, remark, words_of
from dp2ddp.codemod.mentions import is_type_test, mentions
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, is_main_guard
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched

INITIALISES = re.compile(r"apply$|_?(init|reset)")
APART = "ranks that do not wrap it would train apart"
PLAIN = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp),
    *(ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop),
)
CHANGED = "changed behind the wrap, by each rank for itself: set a seed, or move it above the wrap"
BECAUSE = "each rank trains on its own GPU; gradients are averaged over the ranks"


class Wrapped(IdiomaticRule):
    """Wrap the model in DistributedDataParallel, on its own GPU.

    ## What it does
    `nn.DataParallel(net)` becomes `DDP(net, device_ids=[local_rank])`; a model that is moved behind the wrap is moved
    before it. Where a model runs twice before one backward pass, `broadcast_buffers=False` keeps its buffers as the
    first run left them. Types that are asked for (`isinstance(net, nn.DataParallel)`) are DDP's.

    ## Why
    DDP takes parameters as they are when it is made: on the device, with `requires_grad` as it is to be.

    ## Safety
    What changes parameters behind the wrap (`net.apply(init)`) runs on each rank by itself: a comment says so, where no
    seed is set. Where the wrap hangs on an option, an `assert` stops ranks that would train apart.
    `find_unused_parameters=True` stands where a forward may leave layers out, as far as the text tells; without it, DDP
    raises where one does.

    ## References
    torch/nn/parallel/distributed.py; docs/idiomatic.md.
    """

    code = "DDP702"
    name = "idiomatic-wrap"
    nodes = ("Arg", "Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                from torch import nn
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = nn.DataParallel(net, device_ids=[0, 1]).cuda()
                if isinstance(net, nn.DataParallel):
                    print(net.module)
            """,
            after="""
                import torch
                from torch import nn
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = DDP(net.cuda(), device_ids=[local_rank])
                if isinstance(net, DDP):
                    print(net.module)
            """,
        ),
        Rewrites(
            before="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = Net().cuda()
                if args.parallel:
                    net = torch.nn.DataParallel(net)
            """,
            after="""
                import torch
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = Net().cuda()
                assert args.parallel, "ranks that do not wrap it would train apart"
                if args.parallel:
                    net = DDP(net, device_ids=[local_rank])
            """,
        ),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        called = {wrap.call.node.func: wrap for wrap in wraps_of(module.program) if wrap.module is module}
        if patches_parts(module.program):
            return
        for wrap in called.values():
            if trains_nothing(wrap):
                yield from _left_alone(wrap)
            else:
                yield from _wrapped(wrap)
                yield from _insisted(wrap)
        for node, _ in mentions(module, [WRAP]):
            if node not in called and not _is_base(module, node):
                because = "the type of a wrapped model" if is_type_test(module, node) else BECAUSE
                yield Change(Replace(node, words_of(module)["DDP"], because), ("DDP",))
        yield from _changed_behind(module)


def _is_base(module: Module, node: ast.AST) -> bool:
    """Whether a class that goes its own way derives from it (DDP711)."""
    parent = module.parents[node]
    return isinstance(parent, ast.ClassDef) and bool(overrides(parent))


def _left_alone(wrap: ModelWrap) -> Iterator[Finding]:
    model, whole = wrap.model, wrap.chain or wrap.call.node
    assert model is not None
    move = move_of(wrap) if names_cuda(wrap.module.program) else ""
    yield Change(
        Replace(whole, f"{{model}}{move}", "it has nothing to train: DDP would refuse it", {"model": model})
    )


def _wrapped(wrap: ModelWrap) -> Iterator[Finding]:
    module, call, model = wrap.module, wrap.call.node, wrap.model
    words, program = words_of(module), wrap.module.program
    has_cuda, is_class = names_cuda(program), wrap.call.name != WRAP
    needed = ("DDP", *(("torch",) if has_cuda and not words.binds("local_rank") else ()))
    move = move_of(wrap) if has_cuda and model is not None else ""
    options = {"device_ids": f"[{words.index}]"} if has_cuda else {}
    if runs_often(wrap):
        options["broadcast_buffers"] = "False"
    if may_leave_out(program):
        options["find_unused_parameters"] = "True"
    kind = module.text(call.func) if is_class else words["DDP"]
    given = "".join(f", {name}={code}" for name, code in options.items())
    if model is not None and (frozen := may_be_frozen(wrap)):
        test = f" if any(each.requires_grad for each in {frozen}.parameters()) else {{model}}{move}"
        code = f"{kind}({{model}}{move}{given}){test}"
        yield Change(
            Replace(wrap.chain or call, f"({code})" if wrap.is_inner else code, BECAUSE, {"model": model}),
            needed,
        )
        return
    if wrap.chain is not None and model is not None and has_cuda:
        yield Change(
            Replace(wrap.chain, f"{kind}({{model}}{move}{given})", BECAUSE, {"model": model}), needed
        )
        return
    changing = changed_behind(wrap)
    if changing:
        yield from _moved(wrap, changing[-1], f"{kind}({ast.unparse(model)}{move}{given})", needed)  # type: ignore[arg-type]
        return
    if not is_class:
        yield Change(Replace(call.func, kind, BECAUSE), needed)
    if move and model is not None:
        why = "on its device before it is wrapped"
        yield Change(Replace(model, f"{{model}}{move}", why, {"model": model}))
    dropped = [each for each in call.keywords if each.arg in ("device_ids", "output_device", "dim")]
    arguments: list[ast.expr | ast.keyword] = [*call.args[1:], *dropped]
    for argument in arguments:
        yield Change(DropArgument(argument, call, "torchrun starts one process for each GPU"))
    for name, code in options.items():
        yield Change(SetArgument(call, name, code, BECAUSE), needed)


def _insisted(wrap: ModelWrap) -> Iterator[Finding]:
    """`assert args.parallel`: ranks that are not wrapped would train apart, and nobody would see it."""
    module = wrap.module
    child: ast.AST = wrap.call.node
    wraps = {each.call.node for each in wraps_of(module.program)}
    for each in module.around(wrap.call.node):
        if isinstance(each, FUNCTIONS):
            return
        if isinstance(each, ast.IfExp) and not asks_devices(module, each.test):
            yield remark(module, each, APART)
        elif isinstance(each, ast.If) and not is_main_guard(each) and not asks_devices(module, each.test):
            is_body = child in each.body
            other = each.orelse if is_body else each.body
            if wraps & {part for statement in other for part in ast.walk(statement)}:
                pass
            elif all(isinstance(part, PLAIN) for part in ast.walk(each.test)) and not is_elif(module, each):
                test = module.text(each.test) if is_body else f"not ({module.text(each.test)})"
                yield Change(InsertBefore(each, f'assert {test}, "{APART}"', APART, apart=False))
            else:
                yield remark(module, each, APART)
        child = each


def _moved(wrap: ModelWrap, last: ast.stmt, code: str, needed: tuple[str, ...]) -> Iterator[Finding]:
    """The wrap behind what still changes the model: until there it is not wrapped."""
    module, statement = wrap.module, wrap.module.statement(wrap.call.node)
    why = "wrapped when it is as it will be trained"
    yield Change(Remove(statement, why))
    yield Change(InsertAfter(last, f"{ast.unparse(wrap.target)} = {code}", why), needed)  # type: ignore[arg-type]
    for node in module.all(ast.Attribute):
        is_inner = node.attr == "module" and last_word(node.value) == last_word(wrap.target)
        if (
            is_inner
            and statement.lineno < node.lineno <= last.lineno
            and module.parents[module.statement(node)] is module.parents[statement]
        ):
            yield Change(Replace(node, ast.unparse(node.value), why))


def _changed_behind(module: Module) -> Iterator[Finding]:
    for wrap in wraps_of(module.program):
        name = last_word(wrap.target)
        for call in module.calls if wrap.module is module and name and not changed_behind(wrap) else ():
            is_behind = call.node.lineno > wrap.call.node.lineno
            if is_behind and _initialises(call, name) and not is_seeded(module.program, "torch"):
                yield remark(module, call.node, CHANGED)


def _initialises(call: Call, name: str) -> bool:
    """`net.apply(init)`, `net.module.init_weights()`."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    if isinstance(owner, ast.Attribute) and owner.attr == "module":
        owner = owner.value
    return last_word(owner) == name and INITIALISES.match(call.method) is not None
