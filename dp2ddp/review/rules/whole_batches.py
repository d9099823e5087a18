"""What a converted script does as if each rank had a share of its own: its ranks have whole batches, and draw alike."""

import ast
from collections.abc import Callable, Iterator, Mapping

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.wrapper import IN_TURNS
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, inside, last_name, values_of
from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected
from dp2ddp.review.ddp_script import Wrap
from dp2ddp.review.made import Made, data_of
from dp2ddp.review.own_file import Mention, unmoved
from dp2ddp.review.rules.samplers import seedings

JOINING = [
    f"torch.distributed.{name}"
    for name in words(
        "all_gather all_gather_into_tensor all_gather_object all_reduce gather gather_object reduce"
    )
]
SAME_OF_SAME = {"AVG", "MAX", "MIN"}  # operations that give one of W equal values
HOOKS = ("register_forward_hook", "register_forward_pre_hook")
FILLS = {"append", "extend", "add", "update"}
TAKE_TURNS = {each.helper for each in IN_TURNS}  # wrappers behind which every rank runs all replicas


def _counted_again(script: DDPScript) -> Iterator[ast.AST]:
    """Collectives of what the wrapper gave, or a loader whose batches all ranks get; not where ranks part them."""
    outputs = (call.node for call in script.module.calls if script.wrap_of(call.node.func))
    loops = (loop for loader in script.loaders if loader.call in script.helper_calls for loop in loader.loops)
    begin = (*outputs, *(use for loop in loops for use in data_of(script, loop)))
    whole = Made(script, [each for each in begin if script.ranks.at(each).are_all])
    cuts = [each.slice for each in whole.nodes if isinstance(each, ast.Subscript)]
    made = [call for call in whole.calls if call.node in whole.nodes and call.method not in ("cuda", "to")]
    if any(map(script.ranks.may_ask, cuts)) or any(_is_cut_by_rank(script, each) for each in made):
        return
    for call in script.calls_by_all(*JOINING):
        given = values_of(call.node)
        if not whole.nodes.isdisjoint(given) and SAME_OF_SAME.isdisjoint(map(last_name, given)):
            yield call.node


def _is_cut_by_rank(script: DDPScript, call: Call) -> bool:
    """`x.narrow(0, rank * n, n)`."""
    return any(map(script.ranks.has_rank, values_of(call.node)))


def _seeded_apart(script: DDPScript) -> Iterator[ast.AST]:
    for call in seedings(script):
        given = values_of(call.node)
        is_by_rank = any(map(script.ranks.has_rank, given)) or any(map(script.ranks.asks_now, given))
        if is_by_rank and script.ranks.at(call.node).are_all:
            yield call.node


def _filled_by_rows(script: DDPScript) -> Iterator[ast.AST]:
    """Hooks on a part of what is wrapped that fill something outside of them; replicas in turns may."""
    for call in script.module.calls:
        match call.node:
            case ast.Call(func=ast.Attribute(value=hooked, attr=method), args=[hook]) if method in HOOKS:
                wrap = script.wrap_of_part(hooked) or _wrap_below(script, hooked)
                is_part = wrap is not None and hooked not in wrap.mentions
                if wrap and is_part and wrap.helper not in TAKE_TURNS and _fills(script, hook):
                    yield call.node


def _wrap_below(script: DDPScript, hooked: ast.expr) -> Wrap | None:
    """The wrapper that a model, of which something is a part, is certain to get further down."""
    wholes = {script.file.text_of(each): each for each in script.flow.wholes(hooked)}
    for wrap in script.whole_batch_wraps:
        model = unmoved(wrap.model)
        if not isinstance(model, Mention):
            continue
        same = wholes.get(script.file.text_of(model))
        if same is not None and script.flow.is_same(same, model):
            return wrap
    return None


def _fills(script: DDPScript, hook: ast.expr) -> bool:
    """`keep.append(output)`, `keep[name] = output`, `self.kept = output`, of what the hook did not make itself."""
    functions = [each for _, each in script.module.program.functions_given(script.module, hook)]
    return bool(functions) and all(_fills_outside(script, each) for each in functions)


def _fills_outside(script: DDPScript, function: ast.AST) -> bool:
    if not isinstance(function, (ast.Lambda, *NAMED_FUNCTIONS)):
        return False
    is_method = isinstance(script.module.parents[function], ast.ClassDef)
    owner = [each.arg for each in function.args.args[:1] if is_method]
    filled = list[ast.expr]()
    for part in inside(function, ast.Call, ast.Subscript, ast.Attribute):
        match part:
            case ast.Call(func=ast.Attribute(value=holder, attr=method)) if method in FILLS:
                filled.append(holder)
            case ast.Subscript(value=holder, ctx=ast.Store()) | ast.Attribute(value=holder, ctx=ast.Store()):
                filled.append(holder)
    roots = [[*script.flow.wholes(each)][-1] for each in filled]  # `self` of `self.kept["fc"]`
    names = (each for each in roots if isinstance(each, ast.Name))
    return any(each.id in owner or script.file.variable(each)[0] is not function for each in names)


# What finds it, what is said, and what to do
LOOKS: Mapping[Callable[[DDPScript], Iterator[ast.AST]], tuple[str, str]] = {
    _counted_again: (
        "every rank has the whole of this already: over the ranks it counts W times",
        "take it out; what the wrapper gives is of all ranks' rows",
    ),
    _seeded_apart: (
        "ranks draw different numbers from here on, and whole batches have to be drawn alike",
        "give all ranks one seed: what differs between samples, the wrapper draws differently",
    ),
    _filled_by_rows: (
        "this hook sees the rank's own rows, so what it fills is another thing on each rank",
        "hook the wrapper itself, which sees all rows, or return it from the forward",
    ),
}


class AsIfShared(CheckRule):
    """A converted script treats whole batches as if each rank had a share of them.

    Finds, in a script that dp2ddp converted

    - a sum or a gathering over the ranks (`all_reduce`, `all_gather`) of what was made of the wrapper's outputs, or of
      a loader's batches;
    - a seed that a rank is part of;
    - a forward hook, on a part of the wrapped model, that fills a list, a dict or an attribute outside of it.

    Its wrapper takes the whole batch on every rank, and gives the outputs of all rows. So a loss is the same on every
    rank, and a sum of it W times as much; and whatever the script draws for a batch has to be the same on all ranks. A
    layer inside of the wrapper runs the rank's rows alone.

    Found only where every rank is certain to come by. Silent for means, maxima and minima, where the text cuts rows by
    rank, for hooks behind a wrapper that lets replicas run in turns, and where another way of training on ranks is in
    sight.

    https://github.com/NVlabs/LongLive/issues/71, https://github.com/TensorAuto/OpenTau/issues/501.
    """

    code, name = "DDP634", "as-if-shared"
    start = "from ddp_helpers import WholeBatchDDP, init_distributed\nimport torch\nimport torch.distributed as dist\n"
    start += "init_distributed()\n"
    examples = (
        *corrected("""
            # W times
              model = WholeBatchDDP(net)
              loss = criterion(model(x), y)
            - dist.all_reduce(loss)
              print(loss.item())
        """),
        *corrected("""
            # drawn alike
            - torch.manual_seed(args.seed + dist.get_rank())
            + torch.manual_seed(args.seed)
              model = WholeBatchDDP(net)
        """),
        *corrected("""
            # another thing on each rank
              model = WholeBatchDDP(net)
              features = []
            - model.module.register_forward_hook(lambda module, given, made: features.append(made))
            + model.register_forward_hook(lambda module, given, made: features.append(made))
        """),
    )

    def find(self, script: DDPScript) -> Found:
        for look, (what, how) in LOOKS.items() if script.whole_batch_wraps else ():
            yield from (self.problem(node, what=what, how=how) for node in look(script))
