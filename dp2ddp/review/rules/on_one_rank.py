"""What one rank does alone, and all must do together."""

import ast
import re
from collections.abc import Iterator
from itertools import filterfalse, takewhile

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected
from dp2ddp.review.ddp_script import MEETINGS, Wrap
from dp2ddp.review.made import own_numbers
from dp2ddp.review.own_file import literal

OUTSIDE = "put it where all ranks come by, outside of the condition"
WITHOUT = "take the condition away: the helper does it on rank 0 alone"
HAS_BUFFERS = re.compile(r"BatchNorm|resnet|densenet|mobilenet|efficientnet|register_buffer", re.IGNORECASE)
SENDS = re.compile("broadcast(?!_buffers)|sync_module|sync_param")  # it may be weights
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
ALONE = "one rank alone does this part of the step: rates and weights drift apart"
BY_LOSS = "each rank decides by the loss of its own share: rates and weights drift apart"
LEAVES_ALONE = "not all ranks end, or skip a step: others wait, or sum another step's gradients"
LEAVES = "each rank ends, or skips a step, by the loss of its own share: others wait, or sum another step's gradients"
TELL = "let one rank decide, broadcast() what it decides, and all ranks act on that"
ALIKE = "all_reduce() the loss first, so that all ranks decide alike"


class CollectiveOnOneRank(CheckRule):
    """A collective stands where only one rank comes by: the others never meet it.

    Finds `barrier`, `all_reduce` and the like, and functions of the file that call one, under `if rank == 0:`, or
    behind `if rank != 0: return`, with no other call of it for the other ranks; a rank is also what `mp.spawn` gives
    its function, and whatever is given nothing but ranks (`self.gpu_id = int(os.environ["LOCAL_RANK"])`). In a script
    that dp2ddp converted, helpers that all ranks must call, as well (`if dist.get_rank() == 0: save_on_rank0(...)`).

    All ranks of a group must make the call. The one that does waits until the time-out, half an hour with NCCL.

    Silent with a `group` of its own, and where another call of the same function in that function asks for a rank as
    well: `if rank != 0: barrier()` ... `if rank == 0: barrier()` is how one rank goes first.

    https://github.com/huggingface/transformers-bloom-inference/pull/40.
    """

    code, name = "DDP608", "collective-on-one-rank"
    message = "only one rank comes to {what}, and waits there for all the others"
    examples = corrected("""
        # only one rank
          def save(model, rank):
              if rank == 0:
                  write(model)
        -         dist.barrier()
        +     dist.barrier()
    """)

    def find(self, script: DDPScript) -> Found:
        meetings = (*filterfalse(_has_group, script.collectives), *script.certain_helpers(MEETINGS))
        for call in script.module.calls if meetings else ():
            where = script.ranks.at(call.node)
            if where.condition is None or where.place is not call.node:
                continue
            function = script.file.function_of(call.node)  # others in it may ask for a rank: one goes first
            beside = (each for each in script.module.calls if script.file.function_of(each.node) is function)
            others = (each for each in beside if script.ranks.at(each.node).are_some)
            elsewhere = {met.name for each in others for met in _met_by(script, each, meetings)}
            met = next((each for each in _met_by(script, call, meetings) if each.name not in elsewhere), None)
            helper = script.helper_calls.get(met, "") if met else ""
            if met and (not helper or script.ranks.asks_now(where.test)):
                word = (met.name or "").rpartition(".")[2]
                own = f"the {word}() in {script.file.text_of(call.node.func)}()"
                what = f"this {word}()" if met is call else own
                yield self.problem(call.node, what=what, how=WITHOUT if helper else OUTSIDE)


def _met_by(script: DDPScript, call: Call, meetings: tuple[Call, ...]) -> Iterator[Call]:
    """What all ranks must call together: a call itself, and what the functions of the file call that it runs."""
    bodies = set(script.flow.runs(call.node)) if script.file.callee(call.node) else ()
    for each in meetings:
        where = script.ranks.at(each.node)
        asks = where.are_some or where.place is each.node
        if each is call or script.file.function_of(each.node) in bodies and not asks:
            yield each


def _has_group(call: Call) -> bool:
    """Whether a group of its own may be given, by name or by position: it is the third argument of most, or later."""
    first = 1 if call.name == "torch.distributed.barrier" else 3
    return call.keyword("group") is not None or len(call.node.args) >= first


class WrapperOnOneRank(CheckRule):
    """One rank alone runs the wrapped model, and waits for the others.

    Finds a call of the wrapper itself under `if rank == 0:`, or of a function of the file that calls what it is given,
    where gradients are on or the file's models have buffers. In a script that dp2ddp converted, of its wrapper, always:
    that joins the outputs of all ranks.

    The wrapper's forward sends rank 0's buffers to all ranks, in evaluation, too, and its backward sums gradients. So
    the rank waits for ranks that do something else: it hangs, or meets another collective of theirs.

    Silent with `broadcast_buffers=False`, under `no_grad` in files that name no layer with buffers, and where the other
    branch runs the wrapper, too.

    https://github.com/dmlc/dgl/pull/4385, https://github.com/pytorch/pytorch/issues/89716.
    """

    code, name = "DDP609", "wrapper-on-one-rank"
    message = "one rank alone runs the wrapper `{name}`, whose forward asks all ranks for their part"
    advice = "let all ranks come by, or run the model itself: {name}.module"
    examples = corrected("""
        # model.module
          model = DistributedDataParallel(net)
          for epoch in range(3):
              train(model)
              if dist.get_rank() == 0:
        -         out = model(x)
        +         out = model.module(x)
    """)

    def find(self, script: DDPScript) -> Found:
        for wrap in script.all_wraps:
            for mention in script.flow.not_handed(wrap.mentions):
                where, handed = script.ranks.at(mention), {mention, *script.flow.received(mention)}
                run = next((each.node for each in script.module.calls if each.node.func in handed), None)
                call = script.file.part_of(mention)  # of the wrapper, or of a function that runs it
                waits = run and where.are_one and _waits(script, wrap, where.test, run)
                if call and waits and not _do_others_too(script, call):
                    yield self.problem(call, name=script.file.text_of(mention))


def _waits(script: DDPScript, wrap: Wrap, test: ast.expr, run: ast.Call) -> bool:
    """Whether a forward of one rank has something to wait for."""
    if wrap.helper:
        return script.ranks.asks_now(test)
    if literal(wrap.call.argument(None, "broadcast_buffers")) is False:
        return False
    names = (*script.file.imports, *map(script.module.name, script.module.by_word.get("models", ())))
    is_known = any((name or "").startswith("torchvision.models") for name in names)
    has_buffers = is_known or script.file.says(HAS_BUFFERS)
    return wrap.is_torchs and has_buffers or not script.flow.is_without_gradient(run)


class LocalDecision(CheckRule):
    """Ranks step differently: their rates and weights drift apart.

    Finds `step()` and `zero_grad()` of an optimizer or a scheduler where one rank alone comes by; `break`, `return` and
    `continue` that leave out what trains, where not all ranks do. And what each rank decides by numbers of its own
    share of the data, in a loop over a loader with a `DistributedSampler`, if these are nowhere reduced nor gathered:
    `ReduceLROnPlateau.step(loss)`, `if loss > limit: break`, `continue` above the backward pass.

    Gradients are the same on all ranks still. A rank that steps by another rate, or not at all, has other weights from
    then on, and nothing says so. One that leaves a backward pass out sums another step's gradients with the others from
    then on; one that leaves the loop makes them wait.

    Silent where such numbers are handed to a function of another file, which may reduce them, or to anything with
    `reduce`, `gather`, `metric`, `broadcast` or the like in its name, ReduceLROnPlateau itself aside; for an optimizer
    that one rank alone makes, for another model; and for a step of one rank in a file that broadcasts something: it may
    be the weights.

    https://github.com/rmchurch/disruptcnn/issues/3, https://github.com/lucidrains/DALLE-pytorch/issues/268.
    """

    code, name = "DDP612", "local-decision"
    examples = corrected("""
        # drift apart
          from torch.optim.lr_scheduler import ReduceLROnPlateau
          model = DistributedDataParallel(net)
          scheduler = ReduceLROnPlateau(optimizer)
          loader = DataLoader(data, sampler=DistributedSampler(data))
          for epoch in range(10):
              total = torch.zeros(1)
              for x, y in loader:
                  total += step(model, x, y).item()
        +     dist.all_reduce(total)
              scheduler.step(total)
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks:
            return
        for call in script.module.calls:
            is_alone = _is_part_of_a_step(script, call) and script.ranks.at(call.node).are_one
            if is_alone and not script.file.says(SENDS) and not _do_others_too(script, call.node):
                yield self.problem(call.node, what=ALONE, how="let all ranks do it")
        for leaving in script.module.nodes(ast.Break, ast.Continue, ast.Return):
            if _leaves_alone(script, leaving) and not _do_others_too(script, leaving):
                yield self.problem(leaving, what=LEAVES_ALONE, how=TELL)
        for numbers in own_numbers(script):
            plateaus = (call.node for call in numbers.calls if _is_plateau(script, call))
            yield from (self.problem(each, what=BY_LOSS, how=ALIKE) for each in plateaus)
            conditions = (each for each in script.module.all(ast.If) if each.test in numbers.nodes)
            exits = (each for each in conditions if _decides(script, each))
            yield from (self.problem(each, what=LEAVES, how=ALIKE) for each in exits)


def _is_part_of_a_step(script: DDPScript, call: Call) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`."""
    owner = getattr(call.node.func, "value", None)
    return call.method in ("step", "zero_grad") and any(map(script.is_optimizer, (owner, *call.node.args)))


def _leaves_alone(script: DDPScript, leaving: ast.AST) -> bool:
    """Whether one rank, or all but one, leaves a loop that all ranks are in."""
    condition, loop = script.ranks.parting(leaving), script.file.loop_around(leaving)
    is_inside = condition is not None and loop is script.file.loop_around(condition)
    return is_inside and _leaves_out(script, leaving)


def _do_others_too(script: DDPScript, node: ast.AST) -> bool:
    """Whether the other branch of the condition of one rank does the same."""
    does = script.file.text_of(getattr(node, "func", node))
    others = (each for other in script.ranks.others(node) for each in inside(other, type(node)))
    return any(script.file.text_of(getattr(each, "func", each)) == does for each in others)


def _is_plateau(script: DDPScript, call: Call) -> bool:
    """Whether ReduceLROnPlateau is given something."""
    makers = script.file.made_by(getattr(call.node.func, "value", None))
    return call.method == "step" and any(each.name == PLATEAU for each in makers)


def _decides(script: DDPScript, condition: ast.If) -> bool:
    """Whether a condition ends a loop that trains, or leaves out a backward pass or a step."""
    last = condition.body[-1]
    if isinstance(last, (ast.Break, ast.Continue, ast.Return)):
        return _leaves_out(script, last)
    calls = (call for part in (*condition.body, *condition.orelse) for call in script.module.calls_in(part))
    return any(_is_part_of_a_step(script, call) for call in calls)


def _leaves_out(script: DDPScript, leaving: ast.AST) -> bool:
    """Whether a backward pass does not run any more behind `break`, `return` or `continue`."""
    loop = script.file.loop_around(leaving)
    if not isinstance(leaving, ast.Continue):
        return loop is not None and script.flow.trains_in(loop)
    within = takewhile(lambda each: each is not loop, (leaving, *script.module.around(leaving)))
    later = (each for part in within if isinstance(part, ast.stmt) for each in script.module.behind(part))
    return any(map(script.flow.trains_in, later))


class LoadOnOneRank(CheckRule):
    """One rank alone loads weights into a model that is wrapped already, or the state of an optimizer.

    Finds `load_state_dict` on a wrapper, on the model inside, or on an optimizer of torch's, under `if rank == 0:`.

    The wrapper sends rank 0's parameters to the others once, when it is made, and an optimizer's state never. Whatever
    else is loaded stays where it was loaded, and the ranks train different models.

    Silent where the file broadcasts or synchronizes something, and where nothing trains afterwards: the best weights
    may be loaded at the end, to be tested by one rank.

    https://github.com/Metta-AI/metta/pull/1882, https://github.com/pytorch/pytorch/issues/111138.
    """

    code, name = "DDP617", "load-on-one-rank"
    message = "one rank alone loads this, behind the wrap: the other ranks keep what they had"
    advice = "load on every rank; weights may come on rank 0 alone before wrapping"
    examples = corrected("""
        # other ranks
          model = DistributedDataParallel(net)
        - if dist.get_rank() == 0:
        -     model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
        + model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
    """)

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls if script.all_wraps and not script.file.says(SENDS) else ():
            owner, where = getattr(call.node.func, "value", None), script.ranks.at(call.node)
            if call.method != "load_state_dict" or owner is None or not where.are_one:
                continue
            is_of_all = script.wrap_around(owner) or script.is_optimizer(owner)
            asks = script.wraps or script.ranks.asks_now(where.test)
            trains = script.flow.trains_in
            is_over = trains(script.module.tree) and not any(map(trains, script.flow.later(call.node)))
            if is_of_all and asks and not is_over:
                yield self.problem(call.node)
