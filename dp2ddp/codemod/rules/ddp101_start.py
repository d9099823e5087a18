"""Join the ranks before the script does anything.

`init_distributed()` comes before the first statement that does more than define. A setting of
`CUDA_VISIBLE_DEVICES` stays before it, also in a function that is called from there; one that comes later goes into
the launch line. A note says where the number of ranks cannot be read off. Where a library is imported that is not
known, `refuse_own_files()` comes behind it: what a library writes on ranks beside rank 0 is an error that names the
script's line. Where something is trained that no wrapped model holds, `keep_ranks_alike()` gives rank 0's numbers of
it to all ranks now and then: kernels of GPUs round differently. Where the order of a set of strings may matter,
`have_one_hash_seed()` comes before it: each rank starts itself anew with `PYTHONHASHSEED=0`, unless that is set, as
in `convert`'s launch line. Where a library wraps the model by itself (DDP208) it is `join_ranks()`, and libraries see
the ranks.

What is done before, every rank does by itself: prints, random numbers, files. Joining chooses the rank's device.

Started by plain `python`, the script is a world of one and trains as it did on one device.

docs/semantics.md#unseeded, docs/semantics.md#visible-devices, docs/semantics.md#printing.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertBefore, Note
from dp2ddp.codemod.knowledge.libraries import is_known_library
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.launch import walks_over_sets
from dp2ddp.codemod.looks.hidden_wraps import library_wraps
from dp2ddp.codemod.looks.looked_up import imports_unread
from dp2ddp.codemod.looks.ours import has_joined, of_the_user
from dp2ddp.codemod.looks.start import Join, devices_set, first_act, join_of, settings, visible_text
from dp2ddp.codemod.looks.trained import trains_outside
from dp2ddp.codemod.looks.wraps import find_wraps, largest_count, wraps_in
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import constant
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff, flags

# Where scripts look classes and functions up by a name: nothing there writes a file.
WRITES_NOTHING = tuple(
    words("torch.nn torch.optim torch.float torchvision.models torchvision.transforms argparse")
)

_BECAUSE = "the process group starts here, before the first random number or CUDA call"
_OUTSIDE = "what is trained outside of the wrapper is copied from rank 0 every 20th forward: GPUs may round differently"
BY_COMMAND = Reason(
    "console-script",
    "a console script starts this function: install the converted package, then start it by "
    "`torchrun --nproc-per-node gpu --no-python COMMAND`",
)
NOTHING_RUNS = Reason(
    "nothing-runs",
    "nothing runs when this file is started, so there is no place where the ranks could join",
    "convert the script that starts the training",
)
TOO_LATE = Reason(
    "devices-set-late",
    "CUDA_VISIBLE_DEVICES is set here after the ranks have chosen their devices, so it does nothing any more: set "
    "it where the script is started (CUDA_VISIBLE_DEVICES=0,1 torchrun ...)",
)
UNREAD_VISIBLE = Reason(
    "unread-visible-devices", "start one rank for each device that CUDA_VISIBLE_DEVICES is set to here"
)
UNREAD_IDS = Reason(
    "unread-device-ids", "these device_ids cannot be read: start one rank for each of them (--nproc-per-node)"
)


class Start(Rule):
    everywhere = True
    examples = (
        diff("""
              import os
              import torch

              def main(gpus):
                  os.environ["CUDA_VISIBLE_DEVICES"] = gpus
            +     init_distributed()
                  net = torch.nn.DataParallel(torch.nn.Linear(2, 2))

              if __name__ == "__main__":
                  main("0,1")
        """),
        flags("""
            # no place where the ranks could join
            import torch
            def build():
                return torch.nn.DataParallel(torch.nn.Linear(2, 2))
        """),
        Untouched("import torch\ninit_distributed()\nnet = torch.nn.DataParallel(net)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        entry = module.program.entry
        if module is not entry:
            late = (each for each, _ in settings(module) if module.function_around(each))
            yield from (Note(each, TOO_LATE) for each in late)
            return
        if not module.tree.body or has_joined(module):
            return
        join = join_of(module)
        if join is None:
            named = (wrap.node for wrap in wraps_in(module))
            yield Hazard(next(named, module.tree.body[0]), NOTHING_RUNS)
            return
        for helper, because in _calls(module.program):
            yield InsertBefore(join.before, f"{helper}()", because, helpers=(helper,))
        if first_act(module) is None:
            yield Note(join.before, BY_COMMAND)
        if join.late is not None:
            yield Note(join.late, TOO_LATE)
        yield from _unknown_world(module, join)


def _calls(program: Program) -> Iterator[tuple[str, str]]:
    if walks_over_sets(program):
        yield "have_one_hash_seed", "a set of strings has one order on all ranks"
    if library_wraps(program):
        yield "join_ranks", _BECAUSE
        return
    yield "init_distributed", _BECAUSE
    if any(map(_may_write_unseen, of_the_user(program))):
        yield "refuse_own_files", "rank 0 alone writes files, whichever library does it"
    if trains_outside(program):
        yield "keep_ranks_alike", _OUTSIDE


def _may_write_unseen(module: Module) -> bool:
    """Whether files may be written where the text does not say so: then each rank looks at what it opens.

    By libraries that nobody knows, by a function of a library that is looked up by a name, by code that is a text, by a
    module that was not read.
    """
    imported = [alias.name for node in module.all(ast.Import) for alias in node.names]
    imported += [node.module or "" for node in module.all(ast.ImportFrom) if not node.level]
    unknown = (name for name in imported if not is_known_library(name) and not module.program.is_local(name))
    return any(unknown) or any(
        call.name == "builtins.exec" or _is_looked_up(module, call) or imports_unread(module, call)
        for call in module.calls
    )


def _is_looked_up(module: Module, call: Call) -> bool:
    """`getattr(torch, name)`, with a name that is no text of the script's."""
    if call.name != "builtins.getattr" or module.name(call.node):
        return False
    home = module.name(call.argument(0))
    return home is not None and not home.startswith(WRITES_NOTHING) and not module.program.is_local(home)


def _unknown_world(module: Module, join: Join) -> Iterator[Note]:
    """Devices that the script chooses in a way that cannot be read."""
    wraps, visible = find_wraps(module.program), devices_set(module)
    is_read = largest_count(wraps) is not None or visible_text(module) is not None
    if visible is not None and not join.late and not is_read:
        yield Note(visible, UNREAD_VISIBLE)
    given = (wrap.device_ids for wrap in wraps if wrap.module is module and wrap.count is None)
    yield from (Note(each, UNREAD_IDS) for each in given if each and not _counts_all(module, each))


def _counts_all(module: Module, given: ast.expr) -> bool:
    """`range(torch.cuda.device_count())`, `None`."""
    value = module.value(given)
    counts = (call.name == "torch.cuda.device_count" for call in module.calls_in(value))
    return constant(value) is None or any(counts)
