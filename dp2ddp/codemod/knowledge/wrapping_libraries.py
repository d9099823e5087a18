"""Libraries that wrap models in DataParallel by themselves: who, since which version, and what takes its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class UnderTorchrun(Enum):
    """What the same lines do on the ranks that torchrun starts."""

    STARTS_DDP = auto()  # nothing has to be written
    WRAPS_ON = auto()  # each rank would wrap once more, for all GPUs: other lines have to stand there


@dataclass(frozen=True)
class WrappingLibrary:
    """One that wraps: all that is asked of it, and what is told of it."""

    name: str  # as its users call it
    since: str  # the version
    used: re.Pattern[str]  # the dotted names of its classes and functions
    under_torchrun: UnderTorchrun
    method: str = (
        ""  # of what `used` makes: `learn.to_parallel()`; "" where the class or function itself wraps
    )
    switch: tuple[str, ...] = ()  # the arguments that say "dp"; none where it needs no asking
    instead: tuple[str, ...] = ()  # the lines to write
    refused: str = ""  # what new versions do instead of wrapping


def _used(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_STARTS, _WRAPS_ON = UnderTorchrun.STARTS_DDP, UnderTorchrun.WRAPS_ON
_LEARNER = r"fastai\.(\w+\.)*\w*[Ll]earner"
_NO_DP = "trl 1 ends with an error where it would be wrapped: it wants torchrun"
LIBRARIES = (
    WrappingLibrary(
        "transformers.Trainer", "2.9", _used(r"transformers\.(\w+\.)*(Seq2Seq)?Trainer"), _STARTS
    ),
    WrappingLibrary("trl", "0.2", _used(r"trl\.(\w+\.)*\w+Trainer"), _STARTS, refused=_NO_DP),
    WrappingLibrary(
        "sentence-transformers", "3.0", _used(r"sentence_transformers\.(\w+\.)*\w+Trainer"), _STARTS
    ),
    WrappingLibrary(
        "sentence-transformers",
        "3.0",
        _used(r"sentence_transformers\.(\w+\.)*(SentenceTransformer|CrossEncoder|SparseEncoder)"),
        _STARTS,
        method="fit",
    ),
    WrappingLibrary("setfit", "1.1", _used(r"setfit\.(\w+\.)*(\w*Trainer)"), _STARTS),
    WrappingLibrary(
        "Lightning Fabric",
        "1.8",
        _used(
            r"(lightning|lightning\.fabric|lightning_fabric|lightning\.lite|pytorch_lightning\.lite)\.(\w+\.)*(Fabric|LightningLite)"
        ),
        _WRAPS_ON,
        switch=("strategy", "accelerator"),
        instead=(
            'strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"])',
            "batch_size // fabric.world_size in each DataLoader",
            "fabric.print(...) for print(...), fabric.is_global_zero around files of your own",
        ),
    ),
    WrappingLibrary(
        "Lightning",
        "0.2",
        _used(r"(lightning|lightning\.pytorch|pytorch_lightning)\.(\w+\.)*Trainer"),
        _WRAPS_ON,
        switch=("strategy", "accelerator", "distributed_backend"),
        instead=(
            'strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"])',
            "batch_size // trainer.world_size in each DataLoader",
            "self.print(...) for print(...), trainer.is_global_zero around files of your own",
        ),
        refused='Lightning 2 has no "dp" any more',
    ),
    WrappingLibrary(
        "ignite",
        "0.4",
        _used(r"ignite\.distributed\.(auto\.)?auto_model"),
        _WRAPS_ON,
        instead=(
            'with idist.Parallel(backend="nccl") as parallel: parallel.run(training)',
            "idist.auto_dataloader(...) for DataLoader(...): it divides batch_size by the number of ranks",
            "if idist.get_rank() == 0: around prints and files",
        ),
    ),
    *(
        WrappingLibrary(
            "fastai",
            "2.0",
            _used(pattern),
            _WRAPS_ON,
            method=method,
            instead=(
                "with learn.distrib_ctx(sync_bn=False): learn.fit(...)",
                "bs=bs // num_distrib() in the DataLoaders",
                "if not rank_distrib(): around prints and files",
            ),
        )
        for method, pattern in (
            ("to_parallel", _LEARNER),
            ("parallel_ctx", _LEARNER),
            ("", r"fastai\.(\w+\.)*ParallelTrainer"),
        )
    ),
)
# A text search rejects what cannot matter, before anything is parsed.
IMPORTS = re.compile(
    r"^\s*(?:from|import)\s+(?:transformers|trl|sentence_transformers|setfit|lightning|lightning_fabric|"
    r"pytorch_lightning|ignite|fastai)\b",
    re.MULTILINE,
)


def wrapping_library(dotted: str | None, method: str = "") -> WrappingLibrary | None:
    """The row of a class or function; with `method`, of that method of what it makes."""
    if not dotted:
        return None
    return next((each for each in LIBRARIES if each.method == method and each.used.fullmatch(dotted)), None)
