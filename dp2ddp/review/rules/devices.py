"""Which device is a rank's own."""

import ast
import re
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.looks.devices import index_in_text
from dp2ddp.codemod.looks.start import settings
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.review.check_rule import CheckRule, CheckWarning, DDPScript, Found, corrected
from dp2ddp.review.made import Made
from dp2ddp.review.own_file import literal

SHOWS_ONE = re.compile(r"VISIBLE_DEVICES|slurm", re.IGNORECASE)
NAMES_A_DEVICE = re.compile(r"set_device|device_ids|set_default_device|local_rank", re.IGNORECASE)
CURRENT = "moves to the current device, which is GPU 0 on every rank: nothing sets another"
SET = 'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything else uses CUDA'
NAMED = "names GPU {number}, so every rank works on that one"
NAME_OWN = 'name the rank\'s own: torch.device("cuda", int(os.environ["LOCAL_RANK"]))'
SETS = ("torch.cuda.set_device", "torch.cuda.device")
Use = tuple[ast.expr, set[object]]
LOCAL_RANK = re.compile("LOCAL_RANK")


class LoadOntoOneDevice(CheckWarning):
    """Every rank loads the checkpoint onto the device of the rank that saved it.

    Finds a `torch.load` without `map_location` that goes into `load_state_dict`, in a file that saves checkpoints of a
    model on GPUs itself.

    A tensor is loaded to where it was saved from: GPU 0. So all ranks of a node allocate there, some hundred MB each
    and all of the checkpoint, until it runs out of memory.

    Silent where the file saves nothing: weights that somebody else saved may come from the CPU; where one rank alone
    loads, and where each has a file of its own.

    https://github.com/pytorch/pytorch/issues/23138, https://github.com/pytorch/examples/issues/1078.
    """

    code, name = "DDP607", "load-onto-one-device"
    message = "without map_location every rank loads onto the GPU of the rank that saved"
    advice = 'pass map_location="cpu", or the rank\'s own device'
    examples = corrected("""
        # map_location
          model = DistributedDataParallel(net.cuda(rank), device_ids=[rank])
          if resume:
        -     model.load_state_dict(torch.load("last.pt"))
        +     model.load_state_dict(torch.load("last.pt", map_location="cpu"))
          if rank == 0:
              torch.save(model.state_dict(), "last.pt")
    """)

    def find(self, script: DDPScript) -> Found:
        on_gpu = any(wrap.call.argument(1, "device_ids") is not None for wrap in script.wraps)
        saves = any(script.file.calls_of("torch.save"))
        for call in script.file.calls_of("torch.load") if script.trains_on_ranks and on_gpu and saves else ():
            says_where = call.argument(1, "map_location") or any(not each.arg for each in call.node.keywords)
            if says_where or _has_alternative(script, call) or _is_own(script, call):
                continue
            if any(each.method == "load_state_dict" for each in Made(script, [call.node]).calls):
                yield self.problem(call.node)


def _is_own(script: DDPScript, load: Call) -> bool:
    """Whether a rank loads what no other rank loads, or what it has in memory."""
    path = load.argument(0, "f")
    is_own = path is not None and (script.ranks.may_ask(path) or script.flow.is_open_file(path))
    return is_own or script.ranks.at(load.node).are_one


def _has_alternative(script: DDPScript, call: Call) -> bool:
    """Whether another branch of an `if` around it loads with a map_location."""
    conditions = script.file.around(call.node, ast.If)
    others = (each for condition in conditions for each in script.file.other_branch(condition, call.node))
    return any(given.arg == "map_location" for each in others for given in inside(each, ast.keyword))


class NoSetDevice(CheckRule):
    """No rank says which device is its own, so all of them work on GPU 0; or all name the same one.

    Finds a file that makes an NCCL group, moves things with `.cuda()` or `.to("cuda")`, and neither calls `set_device`
    nor names a device in any other way. And `.to("cuda:0")`, `device="cuda:0"`, `device_ids=[0]` where every rank is
    certain to come by, if that is the only number in the file.

    `.cuda()` means the current device, which is 0 in every process until somebody sets it. NCCL refuses two ranks on
    one GPU ("Duplicate GPU detected"), or hangs.

    Silent where a launcher may show each rank one GPU (CUDA_VISIBLE_DEVICES and Slurm are named), and where a function
    of another file may set the device.

    https://github.com/pytorch/pytorch/issues/50921, https://github.com/NVIDIA/apex/issues/222.
    """

    code, name = "DDP610", "no-set-device"
    examples = corrected("""
        # set_device
        + torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
          model = DistributedDataParallel(net.cuda())
    """)

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks or script.is_converted or script.file.says(SHOWS_ONE):
            return
        used = [*_used(script)]
        if named := next(_named(script, used), None):
            yield self.problem(named[0], what=NAMED.format(number=named[1]), how=NAME_OWN)
        current = [node for node, devices in used if "cuda" in devices]
        is_set = script.sets_up_elsewhere or script.file.says(NAMES_A_DEVICE) or "nccl" not in script.backends
        if current and not is_set and all(devices <= {"cuda", "cpu"} for _, devices in used):
            yield self.problem(current[0], what=CURRENT, how=SET)


def _named(script: DDPScript, used: Sequence[Use]) -> Iterator[tuple[ast.expr, int]]:
    """Where every rank uses a device by its number, which is the only one in the file."""
    numbers = {each for _, devices in used for each in devices if type(each) is int}
    for node, devices in used if len(numbers) == 1 and "gloo" not in script.backends else ():
        if devices - {"cpu"} == numbers and script.ranks.at(node).are_all:
            yield node, min(numbers)


def _used(script: DDPScript) -> Iterator[Use]:
    """Where things are moved to a device, or made there, and what devices these may be."""
    for call in script.module.calls:
        given = call.argument(0, "device")
        asks = (call.name or "").startswith("torch.cuda.")  # `torch.cuda.memory_allocated(device=0)`
        if call.method == "cuda" and given is None:
            yield call.node, {"cuda"}
        elif call.method in ("to", "cuda") or call.name in SETS or call.keyword("device") and not asks:
            yield call.node, _devices(script, given)
    ids = (wrap.call.argument(1, "device_ids") for wrap in script.wraps)
    yield from (
        (each, _devices(script, each)) for one in ids if isinstance(one, ast.List) for each in one.elts
    )


def _devices(script: DDPScript, node: ast.AST | None) -> set[object]:
    """The devices that an expression may name: numbers, "cuda" for the current one, "cpu"; None: nobody knows."""
    return {each for value in script.file.all_values(node) or (node,) for each in _named_by(script, value)}


def _named_by(script: DDPScript, value: ast.AST | None) -> set[object]:
    match value:
        case ast.Call(func=function, args=[*_, inner]) if script.module.name(function) == "torch.device":
            return _devices(script, inner)
    number = index_in_text(value) if isinstance(value, ast.expr) else None
    return {literal(value)} if number is None else _devices(script, number)


class LocalRankArgument(CheckRule):
    """`--local_rank` is an argument, which torchrun does not pass.

    Finds `add_argument("--local_rank")` in a file that uses it and never reads LOCAL_RANK from the environment.

    torchrun says the local rank by LOCAL_RANK only, so the argument keeps its default, on every rank.
    `torch.distributed.launch` passes it as `--local-rank` since torch 2.0, which `--local_rank` does not accept.

    Silent where something else sets the value, a function of another file sets ranks up, or the argument is spelled
    both ways, for both versions of `torch.distributed.launch`.

    https://github.com/XPixelGroup/BasicSR/issues/626, https://github.com/skycrapers/TecoGAN-PyTorch/issues/31.
    """

    code, name = "DDP622", "local-rank-argument"
    message = "torchrun passes no --local_rank: the value stays at its default on every rank"
    advice = 'take it from the environment: int(os.environ["LOCAL_RANK"])'
    examples = corrected("""
        # stays at its default
          import argparse
          import os
          parser = argparse.ArgumentParser()
        - parser.add_argument("--local_rank", type=int, default=-1)
        + parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
          args = parser.parse_args()
          torch.cuda.set_device(args.local_rank)
    """)

    def find(self, script: DDPScript) -> Found:
        if script.has_framework or script.file.says(LOCAL_RANK) or not (script.groups or script.wraps):
            return
        uses = script.module.by_word.get("local_rank", ())
        is_set = any(isinstance(use.ctx, ast.Store) for use in uses)
        # a way of its own to start ranks is to stay out of a converted script
        for call in script.module.calls if uses and not is_set and not script.is_converted else ():
            names = list(map(literal, call.node.args)) if call.method == "add_argument" else []
            if "--local_rank" in names and "--local-rank" not in names:
                yield self.problem(call.node)


class VisibleDevicesInScript(CheckWarning):
    """The script says which GPUs there are, to every rank alike.

    Finds `os.environ["CUDA_VISIBLE_DEVICES"] = "..."`, a text, in a file that wraps a model or makes a process group.

    With one GPU in it all ranks share that one (NCCL refuses: "Duplicate GPU detected"). With several, a launch with
    another number of ranks, or on another machine, ends in "invalid device ordinal"; and what the scheduler chose is
    overwritten.

    Values that are computed (from an argument, a rank) are left alone.

    https://github.com/pytorch/examples/issues/885, https://github.com/Peterande/D-FINE/issues/289.
    """

    code, name = "DDP627", "visible-devices-in-script"
    advice = "leave it out, and say it where the script is started: CUDA_VISIBLE_DEVICES=0,1 torchrun ..."
    examples = corrected("""
        # all ranks share
          import os
        - os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        + os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
    """)

    def find(self, script: DDPScript) -> Found:
        for statement, value in settings(script.module) if script.wraps or script.groups else ():
            text, count = literal(value), str(literal(value)).count(",") + 1
            leaves_it = count > 1 and "setdefault" in script.module.text(statement)  # to the launch
            if isinstance(text, str) and text and not leaves_it:
                what = f"any launch of this script sees these {count} GPUs, whatever it was given"
                yield self.problem(statement, what=what if count > 1 else "all ranks share this one GPU")
