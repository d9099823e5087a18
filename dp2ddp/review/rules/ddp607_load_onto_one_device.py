"""Every rank loads the checkpoint onto the device of the rank that saved it.

Finds a `torch.load` without `map_location` that goes into `load_state_dict`, in a file that saves checkpoints of a
model on GPUs itself.

A tensor is loaded to where it was saved from: GPU 0. So all ranks of a node allocate there, some hundred MB each and
all of the checkpoint, until it runs out of memory.

Silent where the file saves nothing: weights that somebody else saved may come from the CPU; where they are moved there
to be saved; where one rank alone loads, and where each has a file of its own.

https://github.com/pytorch/pytorch/issues/23138, https://github.com/pytorch/examples/issues/1078.
"""

import ast

from dp2ddp.review.check_rule import Call, CheckWarning, DDPScript, Found, corrected, inside
from dp2ddp.review.made import Made


class LoadOntoOneDevice(CheckWarning):
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
        saves = [call for call in script.file.calls_of("torch.save") if not _is_of_the_cpu(script, call)]
        for call in script.file.calls_of("torch.load") if script.trains_on_ranks and on_gpu and saves else ():
            says_where = call.argument(1, "map_location") or any(not each.arg for each in call.node.keywords)
            if says_where or _has_alternative(script, call) or _is_own(script, call):
                continue
            if _is_state(script, call):
                yield self.problem(call.node)


def _is_of_the_cpu(script: DDPScript, save: Call) -> bool:
    """Whether the function that saves moves something to the CPU."""
    function = script.file.function_of(save.node)
    scope = save.node if isinstance(function, ast.Module) else function
    return any(node.attr == "cpu" for node in inside(scope, ast.Attribute))


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


def _is_state(script: DDPScript, call: Call) -> bool:
    """Whether what is loaded, or an entry of it, goes into load_state_dict."""
    return any(each.method == "load_state_dict" for each in Made(script, [call.node]).calls)
