"""Whether the workers of loaders may be shared out among the ranks (templates/spread.py)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from dp2ddp.codemod.facts.effects import STARTERS
from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.script import Call, Script, literal
from dp2ddp.codemod.facts.tables import of

SHUFFLE, WORKERS = (
    2,
    5,
)  # positions of shuffle and num_workers: dataset, batch_size, shuffle, sampler, batch_sampler, num_workers
SHARED = ("multiprocessing.", "torch.multiprocessing.")
SAYING = ("sys.stdout.", "sys.stderr.", "logging.", "warnings.", "tqdm.")
LOGGING = {"debug", "info", "warning", "warn", "error", "exception", "critical"}
ITERABLE = tuple(of("torch.utils.data", "IterableDataset IterDataPipe ChainDataset"))
MAPS = ("torchvision.datasets.", *of("torch.utils.data", "TensorDataset ConcatDataset Subset"))
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


class DataSetKind(Enum):
    """How a data set gives its samples; torch's `_DatasetKind`."""

    MAP = "by index"
    ITERABLE = "one after the other"  # every worker gives what it likes: none can be left out
    UNKNOWN = "unknown"


def loaders_with_workers(script: Script) -> Iterator[Call]:
    """Loaders whose workers can be shared out."""
    for call in script.calls_of(LOADER):
        if has_workers(call) and data_set_kind(script, call) is not DataSetKind.ITERABLE:
            yield call


def data_set_kind(script: Script, loader: Call) -> DataSetKind:
    """By the class of what the loader is given, as far as that is a class of the script's or of torch's.

    DataLoader takes no `shuffle=True` for an iterable data set.
    """
    if literal(loader.argument(SHUFFLE, "shuffle")) is True:
        return DataSetKind.MAP
    given = loader.argument(0, "dataset")
    made = script.scopes.value(given) if given is not None else None
    if not isinstance(made, ast.Call):
        return DataSetKind.UNKNOWN
    if (script.scopes.name(made.func) or "").startswith(MAPS):
        return DataSetKind.MAP
    pending, seen = [made.func], set()
    while pending:
        node = pending.pop()
        if script.scopes.name(node) in ITERABLE:
            return DataSetKind.ITERABLE
        definition = script.scopes.definition(node)
        if isinstance(definition, ast.ClassDef) and definition not in seen:
            seen.add(definition)
            pending += definition.bases
    return DataSetKind.MAP if seen else DataSetKind.UNKNOWN
