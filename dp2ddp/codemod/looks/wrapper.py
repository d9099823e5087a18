"""Which wrapper stands for DataParallel, once a program."""

import ast
from enum import Enum
from functools import lru_cache

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.filling import fillings
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.looks.replicated import has_callbacks, has_own_parts
from dp2ddp.codemod.looks.trained import class_wraps, copies_whole, name_of_wrapped, trains_outside
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, LOOPS, functions_of, inside, last_name, root_name
from dp2ddp.codemod.model.program import Program

# What DistributedDataParallel does not do as DataParallel does, or sees too late. Gradients are multiplied by the
# number of ranks on their way: float16 could not hold them, and a backward or a hook of the script's own would see it.
SPECIAL_HOMES = tuple(
    words(
        "torch.autograd.grad torch.autograd.functional torch.autograd.Function torch.autograd.function. functorch.",
        "torch.autograd.graph torch.func. torch.utils.checkpoint torch.nn.SyncBatchNorm torch.nn.parallel._functions.",
        "torch.nn.parallel.data_parallel torch.nn.parallel.parallel_apply torch.nn.parallel.replicate",
        "torch.cuda.amp torch.amp torch.autocast torch.float16 torch.half apex.amp apex.fp16_utils",
        "torch.nn.utils.prune torch.nn.utils.parametrize.",  # other parameters than at the wrap
    )
)
SPECIAL_NAMES = words(
    "half requires_grad_ register_hook register_post_accumulate_grad_hook register_backward_hook",
    "register_full_backward_hook register_full_backward_pre_hook device_ids output_device src_device_obj",
    "watch",  # a tracker's: it hooks all parameters
)
SPECIAL_KEYWORDS = words("create_graph retain_graph requires_grad sparse")
NARROW = words(
    "KeyboardInterrupt ImportError ModuleNotFoundError FileNotFoundError OSError FileExistsError StopIteration",
    "KeyError AttributeError SystemExit EOFError IOError",
)

# What makes images: layers, and functions in a layer's methods.
IMAGE_LAYERS = words(
    "torch.nn.ConvTranspose2d torch.nn.ConvTranspose3d torch.nn.Upsample torch.nn.UpsamplingBilinear2d",
    "torch.nn.UpsamplingNearest2d torch.nn.PixelShuffle",
)
IMAGE_FUNCTIONS = words(
    "torch.nn.functional.interpolate torch.nn.functional.upsample torch.nn.functional.pixel_shuffle",
    "torch.nn.functional.conv_transpose2d",
)


class Choice(Enum):
    """Why a helper takes DataParallel's place: the name of the reason, and that helper's."""

    TYPE_REQUESTED = "type-requested", "AnyDataParallel"
    OF_LIBRARY = "of-library", "LibrarysOnRanks"
    OF_LIBRARY_FILLS = "of-library-fills", "LibrarysInTurns"
    OWN_PARTS = "own-parts", "DataParallelOnRanks"
    OWN_PARTS_FILL = "own-parts-fill", "DataParallelInTurns"
    FILLS = "forward-fills", "WholeBatchInTurns"
    PRINTS = "forward-prints", "WholeBatchPrinting"
    WRITES_WEIGHTS = "forward-writes-weights", "WholeBatchWriting"
    CATCHES_ERRORS = "catches-errors", "WholeBatchSharingErrors"
    SEVERAL_WRAPS = "several-wraps", "WholeBatch"
    LARGE_OUTPUTS = "large-outputs", "WholeBatchInParts"
    ONE_PLAIN_STEP = "one-plain-step", "WholeBatchDDP"
    # what of a plain step is not so
    OTHER_GRADIENTS = "other-gradients", "WholeBatchParallel"
    OTHER_WRAP = "other-wrap", "WholeBatchParallel"
    TRAINS_MORE = "trains-more", "WholeBatchParallel"
    COPIED_WHOLE = "copied-whole", "WholeBatchParallel"
    OTHER_STEP = "other-step", "WholeBatchParallel"

    def __init__(self, reason: str, helper: str) -> None:
        self.reason, self.helper = reason, helper


IN_TURNS = (Choice.FILLS, Choice.OWN_PARTS_FILL, Choice.OF_LIBRARY_FILLS)


@lru_cache(maxsize=1)
def wrapper(program: Program) -> Choice:
    """What takes the place of DataParallel itself, and why."""
    if has_own_parts(program):
        return Choice.OWN_PARTS_FILL if parts_take_turns(program) else Choice.OWN_PARTS
    may_catch = any(_may_go_on_after_errors(module) for module in program.modules)
    if filled := fillings(program):
        return Choice.FILLS if may_catch else _of_filling(filled)
    if may_catch:
        return Choice.CATCHES_ERRORS
    if len(class_wraps(program)) != 1:
        return Choice.SEVERAL_WRAPS
    return Choice.LARGE_OUTPUTS if may_give_large_outputs(program) else _of_step(program)


def takes_turns(program: Program) -> bool:
    """Whether a rank may run the forwards of all replicas, on its own device."""
    return wrapper(program) in IN_TURNS or parts_take_turns(program)


def parts_take_turns(program: Program) -> bool:
    """Whether replicas that run by DataParallel's parts fill what outlives a forward: what they print is heard anyway.

    Those that exchange messages while they run cannot.
    """
    filled = () if has_callbacks(program) else fillings(program)
    return not all(only_prints(*each) for each in filled)


def _of_filling(filled: list[tuple[Module, ast.AST]]) -> Choice:
    """Replicas take turns, but where forwards only print, or only write into weights."""
    if all(only_prints(module, node) for module, node in filled):
        return Choice.PRINTS
    if all(_writes_weights(module, node) for module, node in filled):
        return Choice.WRITES_WEIGHTS
    return Choice.FILLS


def only_prints(module: Module, node: ast.AST) -> bool:
    """`print("rows", len(x))`, to nowhere else."""
    is_print = isinstance(node, ast.Call) and module.name(node.func) == "builtins.print"
    return is_print and not any(each.arg in ("file", None) for each in node.keywords)  # type: ignore[attr-defined]


def _writes_weights(module: Module, node: ast.AST) -> bool:
    """`self.fc.weight.data.clamp_(0)`, or of each `layer` of `self.modules()`: the replica's own; or `.data = x`."""
    match node:
        case ast.Attribute(value=ast.Attribute() as weight, attr="data", ctx=ast.Store()):
            is_written = True
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(value=ast.Attribute() as weight, attr="data"), attr=method)
        ):
            is_written = method.endswith("_")
        case _:
            return False
    is_own = root_name(weight) == "self" or _goes_through_self(module, weight.value)
    return is_written and is_own and forwards_of(module.program).sharing.is_weight(weight.attr)


def _goes_through_self(module: Module, node: ast.expr) -> bool:
    loops = (each for each in module.around(node) if isinstance(each, ast.For))
    return any(
        isinstance(node, ast.Name)
        and isinstance(loop.target, ast.Name)
        and loop.target.id == node.id
        and ast.unparse(loop.iter) == "self.modules()"
        for loop in loops
    )


def _of_step(program: Program) -> Choice:
    """Whether a program trains one model by one forward and one backward a step, which DistributedDataParallel is for.

    What cannot be told is not so. What the text does not show, as what a library does with gradients, the wrapper
    refuses when it happens.
    """
    if any(_has_special(module) for module in program.modules):
        return Choice.OTHER_GRADIENTS
    (wrap,) = class_wraps(program)
    name = name_of_wrapped(wrap)
    if name is None:
        return Choice.OTHER_WRAP
    if trains_outside(program):
        return Choice.TRAINS_MORE
    if copies_whole(program, name):
        return Choice.COPIED_WHOLE
    backwards = [each for each in program.calls if each[1].method == "backward"]
    is_plain = len(backwards) == 1 and _is_plain_step(*backwards[0], name)
    return Choice.ONE_PLAIN_STEP if is_plain else Choice.OTHER_STEP


def _has_special(module: Module) -> bool:
    """Whether a file names anything that DistributedDataParallel is not for."""
    attributes = module.all(ast.Attribute)
    return (
        any(node.attr in SPECIAL_NAMES for node in attributes)
        or any(node.attr == "requires_grad" and isinstance(node.ctx, ast.Store) for node in attributes)
        or any(sets_part_of_wrapped(node) for node in attributes)
        or any(given.arg in SPECIAL_KEYWORDS for given in module.all(ast.keyword))
        or any(name.startswith(SPECIAL_HOMES) for name in module.mentions)
    )


def sets_part_of_wrapped(node: ast.Attribute) -> bool:
    """`net.module.head = nn.Linear(8, 5)`: other parameters than at the wrap, perhaps."""
    return (
        isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "module"
    )


# --- the step


def _is_plain_step(module: Module, backward: Call, name: str) -> bool:
    """Whether the model is called once, and `zero_grad`, in the round of the loop (or function) with the backward.

    And nothing else in that round adds to gradients: sums of several passes are added up in another order.
    """
    here = _round_of(module, backward.node)
    if here is None or backward.node.args or backward.node.keywords:
        return False
    calls = [call for call in module.calls if here in module.around(call.node)]
    called = [call.node for call in calls if call.name is None and last_name(call.node.func) == name]
    attributes = {node.attr for call in calls for node in inside(call.node, ast.Attribute)}
    return (
        [_round_of(module, call) for call in called] == [here]
        and any(
            call.method == "zero_grad" and _runs_before(module, call.node, backward.node) for call in calls
        )
        and "module" not in attributes
        and not any(_asks_for_parameters(module, call) for call in calls)
    )


def _round_of(module: Module, node: ast.AST) -> ast.AST | None:
    """The loop that a node stands in, or the function where there is none; None at module level."""
    return module.enclosing(node, *LOOPS, *FUNCTIONS)


def _runs_before(module: Module, node: ast.AST, other: ast.AST) -> bool:
    """Whether `node` runs in every round in which `other` does: its block holds the other one, too."""
    around = [other, *module.around(other)]
    return _round_of(module, node) is _round_of(module, other) and any(
        each in around for each in module.block_of(module.statement(node))
    )


def _asks_for_parameters(module: Module, call: Call) -> bool:
    """`sum(p.norm() for p in model.parameters())`: not what clips gradients."""
    if call.method not in ("parameters", "named_parameters"):
        return False
    around = (each for each in module.around(call.node) if isinstance(each, ast.Call))
    return not any("clip_grad" in (module.name(each.func) or "") for each in around)


# --- errors


def _may_go_on_after_errors(module: Module) -> bool:
    """Whether a rank might catch an error of its own rows, and go on without the others."""
    wide = (attempt for attempt in module.all(ast.Try) if not all(map(_is_narrow, attempt.handlers)))
    parts = (
        part for attempt in wide for each in attempt.body for part in module.program.closure(module, each)
    )
    return any(_may_run_model(home, call) for home, code in parts for call in home.calls_in(code))


def _is_narrow(handler: ast.ExceptHandler) -> bool:
    """Whether it catches a few kinds of errors alone, or raises what it has caught."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    is_narrow = all(isinstance(kind, ast.Name) and kind.id in NARROW for kind in kinds)
    return is_narrow or isinstance(handler.body[-1], ast.Raise)


def _may_run_model(module: Module, call: Call) -> bool:
    """Whether it may call a model: `model(x)`; what functions of the program call is looked at by itself."""
    if module.definition(call.node.func):
        return False
    if call.name is None:
        return call.method in ("", "backward") or call.method in module.program.methods
    return module.program.is_local(call.name)


# --- large outputs: each rank keeps its rows of them


def may_give_large_outputs(program: Program) -> bool:
    """Whether the text makes images, or compares rows of tokens: `criterion(output.view(-1, words), targets)`.

    This decides what a step costs, and nothing of what it computes: a look at the text is enough. But an output in
    parts is of a class of its own, of which `type(output) is torch.Tensor` is not true.
    """
    return not any(map(_compares_types, program.modules)) and any(
        _makes_images(module) or any(_compares_tokens(module, call) for call in module.calls)
        for module in program.modules
    )


def _compares_types(module: Module) -> bool:
    """`type(x) is torch.Tensor`, `{torch.Tensor: mean}[type(x)]`."""
    named = (
        node
        for node in module.mentions.get("torch.Tensor", ())
        if not isinstance(module.parents[node], ast.Call)
    )
    return any(module.enclosing(node, ast.Compare, ast.Dict) for node in named)


def _makes_images(module: Module) -> bool:
    if not IMAGE_LAYERS.isdisjoint(module.mentions):
        return True
    named = (node for name in IMAGE_FUNCTIONS for node in module.mentions.get(name, ()))
    return any(is_in_layer(module, node) for node in named)


def is_in_layer(module: Module, node: ast.AST) -> bool:
    """Whether a class around has a forward."""
    classes = (each for each in module.around(node) if isinstance(each, ast.ClassDef))
    return any(function.name == "forward" for each in classes for function in functions_of(each))


def _compares_tokens(module: Module, call: Call) -> bool:
    around = module.parents[call.node]
    first = call.node.args[0] if call.node.args else None
    return (
        call.method in ("view", "reshape")
        and isinstance(around, ast.Call)
        and len(around.args) > 1
        and len(call.node.args) == 2
        and isinstance(first, ast.UnaryOp)
    )
