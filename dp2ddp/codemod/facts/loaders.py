"""Data loaders: which ones a rank may share out because loading a sample neither draws numbers nor leaves a trace."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dp2ddp.codemod.facts.collates import collates_alone
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.samples import is_plain_data_set
from dp2ddp.codemod.facts.script import CallSite, Script, literal

LOADER = "torch.utils.data.DataLoader"
KEYWORDS = {  # arguments of a DataLoader that change nothing about what is in a sample: all ranks draw the same batches
    *("sampler", "batch_sampler", "generator", "worker_init_fn", "multiprocessing_context"),
    *(
        "dataset",
        "batch_size",
        "shuffle",
        "num_workers",
        "pin_memory",
        "drop_last",
        "timeout",
        "prefetch_factor",
    ),
    *("persistent_workers", "pin_memory_device"),
}
POSITIONS = 3  # dataset, batch_size, shuffle


@dataclass(frozen=True, eq=False)
class LoaderFact:
    """One `DataLoader(...)`, and what keeps it from being shared out (None: nothing)."""

    call: CallSite
    stopper: str | None


def calls_of_loaders(script: Script, modules: Modules) -> Iterator[CallSite]:
    """All that makes a loader in one file, also of a class of the project's own."""
    for call in script.calls:
        if call.name == LOADER or modules.has_base(script, call.node.func, (LOADER,)):
            yield call


def find_loaders(script: Script) -> tuple[LoaderFact, ...]:
    return tuple(LoaderFact(call, next(_stoppers(script, call), None)) for call in script.calls_of(LOADER))


def against_sharding(
    script: Script, loaders: Sequence[LoaderFact], in_main_flow: Sequence[CallSite]
) -> Iterator[str]:
    """What keeps ranks from loading their own rows alone; `in_main_flow`: loaders made where all ranks come by."""
    known = {loader.call.node for loader in loaders}
    for call in in_main_flow:
        if call.node not in known:
            yield f"a loader class of its own may load in another way ({script.where(call.node)})"
    for loader in loaders:
        if loader.stopper:
            yield f"{loader.stopper} ({script.where(loader.call.node)})"
        elif loader.call.node not in {call.node for call in in_main_flow}:
            yield f"a loader is made where not all ranks come by ({script.where(loader.call.node)})"


def _stoppers(script: Script, call: CallSite) -> Iterator[str]:
    collate = call.argument(None, "collate_fn")
    alone = collate is None or collates_alone(script, collate)
    known = KEYWORDS | {"collate_fn"} if alone else KEYWORDS
    unknown = [keyword.arg or "**" for keyword in call.node.keywords if keyword.arg not in known]
    if (
        unknown
        or len(call.node.args) > POSITIONS
        or any(isinstance(argument, ast.Starred) for argument in call.node.args)
    ):
        yield f"the loader's {unknown[0] if unknown else 'arguments'} may draw or mix samples"
    size = call.argument(1, "batch_size")
    no_size = size is None or isinstance(size, ast.Constant) and literal(size) is None
    if no_size and not call.argument(None, "batch_sampler"):
        yield "the loader makes no batches"
    if not is_plain_data_set(script, call.argument(0, "dataset")):
        yield "loading a sample of its data set may draw random numbers or leave a trace"
