"""DDP707: checkpoints that are loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from dp2ddp.codemod.edits import InsertBefore, SetArgument
from dp2ddp.codemod.idiomatic.effects import ASKS_FILES
from dp2ddp.codemod.idiomatic.looking import last_word
from dp2ddp.codemod.idiomatic.models import wrapped_names
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, names_cuda, remark, words_of
from dp2ddp.codemod.idiomatic.training import leading_to
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS
from dp2ddp.codemod.rule import Change, Finding, Rewrites, Untouched

WRAPPER = (
    "the wrapper itself, which is DDP's from now on, and needs a process group to be loaded: save net.module"
)


class OwnDeviceLoad(IdiomaticRule):
    """Load what rank 0 saved onto the rank's own GPU, when it is there.

    ## What it does
    `torch.load(path)` gets a `map_location` that puts what lay on rank 0's GPU on the rank's own. Where the program
    saves as well, all ranks wait for rank 0 before they load.

    ## Why
    Tensors come back on the GPU that they were saved from, rank 0's; and a rank may load before rank 0 has written.

    ## Safety
    Tensors that were saved on the CPU stay there.

    ## References
    pytorch.org/tutorials/intermediate/ddp_tutorial.html; docs/idiomatic.md.
    """

    code = "DDP707"
    name = "idiomatic-load"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                import torch.distributed as dist
                net.cuda()
                torch.save(net.state_dict(), "net.pt")
                net.load_state_dict(torch.load("net.pt"))
            """,
            after="""
                import torch
                import torch.distributed as dist
                net.cuda()
                torch.save(net.state_dict(), "net.pt")
                dist.barrier()  # rank 0 has written
                net.load_state_dict(torch.load("net.pt", map_location={"cuda:0": f"cuda:{local_rank}"}))
            """,
        ),
        Untouched('import torch\nnet.load_state_dict(torch.load("net.pt", map_location="cpu"))'),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        words = words_of(module)
        saving = leading_to(module.program, _saves)
        for call in module.calls:
            if call.name != "torch.load":
                continue
            given = call.argument(1, "map_location")
            if given is None and names_cuda(module.program) and not call.may_have_more:
                code = f'{{"cuda:0": f"cuda:{{{words.index}}}"}}'
                why = "what lay on rank 0's GPU comes to the rank's own"
                yield Change(SetArgument(call.node, "map_location", code, why), ("torch",))
            if _may_follow(module, call.node, saving):
                code = f"{words['dist']}.barrier()  # rank 0 has written"
                before = InsertBefore(
                    _question_or_load(module, call.node), code, "rank 0 has written", apart=False
                )
                yield Change(before, ("dist",))
        for statement in _wrappers_saved(module):
            yield remark(module, statement, WRAPPER)


def _saves(module: Module, call: Call, functions: Set[str]) -> bool:
    """Whether a call saves, or leads to what does: also of an object (`stopper(loss, net)`)."""
    if does(call.name) is Does.SAVE:
        return True
    called = call.node.func
    name = call.method or (called.id if isinstance(called, ast.Name) else "")
    is_object = call.name is None and name not in module.program.methods
    return (name in functions or is_object and "__call__" in functions) and not (call.name or "").startswith(
        "torch."
    )


def _may_follow(
    module: Module, node: ast.AST, saving: frozenset[str], seen: frozenset[ast.AST] = frozenset()
) -> bool:
    """Whether rank 0 may have saved something before a place: above it, in a loop around it, or before its function."""
    function = module.function_around(node)
    loops = {each for each in module.around(node) if isinstance(each, LOOPS)}
    beside = [each for each in module.calls if module.function_around(each.node) is function]
    for call in (each for each in beside if _saves(module, each, saving)):
        if call.node.lineno < node.lineno or loops & set(module.around(call.node)):  # type: ignore[attr-defined]
            return True
    if function is None or function in seen:
        return False
    owner = module.parents[function] if getattr(function, "name", "") == "__init__" else function
    callers = list(module.program.calls_of(module, owner))
    return not callers or any(
        _may_follow(home, call.node, saving, seen | {function}) for home, call in callers
    )


def _question_or_load(module: Module, node: ast.AST) -> ast.stmt:
    """The statement of a load, or the `if os.path.exists(path):` around it: all ranks must come to the barrier."""
    statement = module.statement(node)
    for each in module.around(statement):
        if isinstance(each, FUNCTIONS):
            break
        if isinstance(each, ast.If) and any(last_word(part) in ASKS_FILES for part in ast.walk(each.test)):
            statement = each
    return statement


def _wrappers_saved(module: Module) -> Iterator[ast.stmt]:
    """`torch.save(net, path)`, also `torch.save({"net": net}, path)`."""
    names = wrapped_names(module.program)
    for call in module.calls:
        given = call.argument(0, "obj") if does(call.name) is Does.SAVE else None
        origins = module.program.flow.origins(module, given) if given is not None else ()
        whole = [(module, given), *origins] if given is not None else []
        nodes = ((home, each) for home, origin in whole for each in _values(origin))
        if any(last_word(each) in names and not _is_part(home, each) for home, each in nodes):
            yield module.statement(call.node)


def _values(node: ast.expr) -> list[ast.expr]:
    return list(node.values) if isinstance(node, ast.Dict) else [node]


def _is_part(module: Module, node: ast.expr) -> bool:
    return isinstance(module.parents[node], ast.Attribute)
