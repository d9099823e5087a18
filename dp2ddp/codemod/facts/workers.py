"""Whether the workers of loaders may be shared out among the ranks (templates/spread.py)."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.facts.effects import STARTERS
from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.script import Call, Script, literal

WORKERS = 5  # the position of num_workers: dataset, batch_size, shuffle, sampler, batch_sampler, num_workers
SHARED = ("multiprocessing.", "torch.multiprocessing.")
SAYING = ("sys.stdout.", "sys.stderr.", "logging.", "warnings.", "tqdm.")
LOGGING = {"debug", "info", "warning", "warn", "error", "exception", "critical"}
HARMLESS = ("set_start_method", "set_sharing_strategy", "cpu_count", "current_process")


def has_workers(call: Call) -> bool:
    """Whether a loader may have workers: `num_workers=args.workers`, `**kwargs`."""
    given = call.argument(WORKERS, "num_workers")
    return any(one.arg is None for one in call.node.keywords) or given is not None and literal(given) != 0


def against_spreading(script: Script, places: Places) -> Iterator[str]:
    """What one file does that makes batches of idle workers missed, or the ranks meet in two orders."""
    for call in script.calls:
        name = call.name or ""
        if name in STARTERS:
            yield f"{name}() may read batches while the main flow goes on ({script.where(call.node)})"
        elif name.startswith(SHARED) and not name.endswith(HARMLESS):
            yield f"workers may share what {name}() makes ({script.where(call.node)})"
        elif call.method == "share_memory_":
            yield f"workers may write to what they share ({script.where(call.node)})"
        elif _speaks(call) and places.of(call.node) is Place.WORKER:
            yield f"a worker prints ({script.where(call.node)})"
        elif name == LOADER and places.of(call.node) is not Place.MAIN:
            yield f"a loader is made in {places.of(call.node).value} ({script.where(call.node)})"


def _speaks(call: Call) -> bool:
    """What a worker on another rank than 0 says is not heard."""
    name = call.name or ""
    return name == "builtins.print" or name.startswith(SAYING) or call.method in LOGGING


def loaders_with_workers(script: Script) -> Iterator[Call]:
    return (call for call in script.calls_of(LOADER) if has_workers(call))
