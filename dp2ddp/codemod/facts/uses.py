"""What a script does with a wrapped model beside running it: whether each mention of it has a known meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass

from dp2ddp.codemod.facts.aliases import before_compiling, callee, handed_over
from dp2ddp.codemod.facts.iterations import LOOPS
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Script, Variable, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.without_graph import WithoutGraph

QUIET_METHODS = {  # methods of the wrapped model that run no forward and touch no gradient graph
    *("parameters", "named_parameters", "buffers", "named_buffers", "modules", "children"),
    *("named_modules", "named_children", "apply", "train", "eval", "training", "state_dict"),
    *("load_state_dict", "zero_grad", "cuda", "to", "cpu", "float", "double", "__class__"),
}
QUIET_NAMES = (
    "torch.save",
    "torch.optim.",
    "copy.deepcopy",
    "torch.nn.utils.clip_grad",
    "logging.",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
)
ASKING = of("builtins", "print len type id str repr hasattr isinstance")


@dataclass(frozen=True, eq=False)
class Stopper:
    """What speaks against a faster choice: why, and where."""

    why: str
    node: ast.AST


def find_uses(script: Script, wraps: tuple[Wrap, ...], names: Set[Variable]) -> Iterator[Stopper]:
    """Every mention of the wrapped model must be one whose meaning is known; these are not."""
    for node in script.nodes(ast.Name, ast.Attribute, ast.Subscript):
        assert isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        if not isinstance(node.ctx, ast.Load) or script.variable(node) not in names:
            continue
        if not _is_known_use(script, node, names) and not is_before_wrap(script, wraps, node):
            around = script.scopes.parents[node]
            if isinstance(around, ast.Attribute) and around.attr == "module":
                around = script.scopes.parents[around]
            text = shorten(script.text_of(around))
            yield Stopper(f"`{text}` uses the wrapped model in a way that is not followed", node)


def shorten(text: str) -> str:
    """A piece of code in one line of at most 50 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 50 else line[:47] + "..."


def is_before_wrap(script: Script, wraps: tuple[Wrap, ...], node: ast.expr) -> bool:
    """`net = Net(); optimizer = SGD(net.head.parameters()); net = DataParallel(net)`: it is not wrapped yet."""
    mine = [wrap for wrap in wraps if script.text_of(node) in wrap.names]
    function = script.scopes.function(node)
    place = script.positions.span(node).start
    for wrap in mine:
        call = wrap.call.node
        if script.scopes.function(call) is not function or script.positions.span(call).start < place:
            return False
        if any(isinstance(ancestor, LOOPS) for ancestor in script.scopes.ancestors(call)):
            return False
    arguments = getattr(function, "args", None)  # none at the level of a module
    parameters = (
        {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)} if arguments else set()
    )
    return bool(mine) and script.text_of(node) not in parameters


def _is_known_use(script: Script, node: ast.expr, names: Set[Variable]) -> bool:
    parent = script.scopes.parents[node]
    match parent:
        case ast.Call(func=func) if func is node:
            return True
        case ast.Call():
            return _is_known_receiver(script, parent, node)
        case ast.keyword():
            call = script.scopes.parents[parent]
            return isinstance(call, ast.Call) and _is_known_receiver(script, call, node)
        case ast.Attribute(attr="module"):
            return _is_known_inner(script, parent)
        case ast.IfExp():
            return parent.test is node or _is_known_inner(script, node)
        case ast.Attribute(attr=attr):
            return attr in QUIET_METHODS or attr == "forward"
        case ast.Assign(value=value):
            return value is node
        case ast.Return():
            return _is_followed(script, script.scopes.function(node))
        case ast.Tuple():
            return _is_taken_apart(script, parent)
        case ast.Dict():
            return _is_known_inner(script, parent)  # what is saved, and nothing else
        case ast.Compare() | ast.UnaryOp() | ast.If() | ast.Expr() | ast.FormattedValue():
            return True
    return False


def _is_known_receiver(script: Script, call: ast.Call, given: ast.expr) -> bool:
    """A function of the script that has a name for what it is given, or one of torch that does no harm."""
    if script.scopes.name(call.func) == "builtins.getattr":  # getattr(net, "module", net)
        name = literal(call.args[1]) if len(call.args) > 1 else None
        return name in QUIET_METHODS or name == "module" and _is_known_inner(script, call)
    if before_compiling(script, call) is not call:  # net = torch.compile(net)
        return isinstance(script.scopes.parents[call], (ast.Assign, ast.Call))
    return any(node is given for _, node in handed_over(script, call)) or _is_quiet_call(script, call)


def _is_taken_apart(script: Script, pair: ast.Tuple) -> bool:
    """`self.net, self.loader = net, loader`; `return net, name`, where each call of the function takes it apart."""
    parent = script.scopes.parents[pair]
    if isinstance(parent, ast.Assign):
        return all(
            isinstance(element, ast.Tuple) and len(element.elts) == len(pair.elts)
            for element in parent.targets
        )
    function = script.scopes.function(pair)
    if not isinstance(parent, ast.Return) or not _is_followed(script, function):
        return False
    calls = [call.node for call in script.calls if callee(script, call.node) is function]
    around = [script.scopes.parents[call] for call in calls]
    return all(
        isinstance(parent, ast.Assign) and all(isinstance(target, ast.Tuple) for target in parent.targets)
        for parent in around
    )


def _is_followed(script: Script, function: ast.AST | None) -> bool:
    """Whether every call of a function is seen: it is mentioned by its name, or on self."""
    name = getattr(function, "name", None)
    for node in script.nodes(ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr == name:
            call = script.scopes.parents[node]
            if (
                not isinstance(call, ast.Call)
                or call.func is not node
                or callee(script, call) is not function
            ):
                return False
    return name is not None


def _is_quiet_call(script: Script, call: ast.Call) -> bool:
    name = script.scopes.name(call.func) or ""
    return name.startswith(QUIET_NAMES) or name in ASKING or name == "torch.nn.DataParallel"


def _is_known_inner(script: Script, inner: ast.expr) -> bool:
    """`model.module`: harmless where no layer is run and no graph is made past the wrapper."""
    return WithoutGraph(script).holds(inner)
