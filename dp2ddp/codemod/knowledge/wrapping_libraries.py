"""Libraries that wrap models in DataParallel by themselves: who, since which version, and what takes its place."""

import re
from dataclasses import dataclass
from functools import partial

from dp2ddp.codemod.reasons import Reason


@dataclass(frozen=True)
class WrappingLibrary:
    """One that wraps: all that is asked of it, and what is told of it."""

    name: str  # as its users call it
    since: str  # the version
    used: str  # the dotted names of its classes and functions, as a pattern
    # on the ranks that torchrun starts, by the same lines; else each would wrap once more, for all GPUs
    starts_ddp: bool = True
    # of what `used` makes: `learn.to_parallel()`; "" where the class or function itself wraps
    method: str = ""
    switch: tuple[str, ...] = ()  # the arguments that say "dp"; none where it need not be told
    instead: tuple[str, ...] = ()  # the lines to write
    refused: str = ""  # what new versions do instead of wrapping


_PL = r"(lightning|lightning\.pytorch|pytorch_lightning)"
_FABRIC = r"(lightning|lightning_fabric|lightning\.fabric|lightning\.lite|pytorch_lightning\.lite)"
_FASTAI = ("with learn.distrib_ctx(sync_bn=False): learn.fit(...)", "bs=bs // num_distrib() in the DataLoaders",
           "if not rank_distrib(): around prints and files")  # fmt: skip
_IGNITE = ('with idist.Parallel(backend="nccl") as parallel: parallel.run(training), of def training(local_rank)',
           "idist.auto_dataloader(...) for DataLoader(...): it divides batch_size by the number of ranks",
           "loader.sampler.set_epoch(epoch) at the start of each epoch, which ignite leaves to you",
           "if idist.get_rank() == 0: around prints and files")  # fmt: skip
_DDP = 'strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"])'
_LIGHTNING = (_DDP, "batch_size // trainer.world_size in each DataLoader",
              "self.print(...) for print(...), trainer.is_global_zero around files of your own")  # fmt: skip
_OF_FABRIC = (_DDP, "batch_size // fabric.world_size in each DataLoader",
              "fabric.print(...) for print(...), fabric.is_global_zero around files of your own")  # fmt: skip


_row, _other = WrappingLibrary, partial(WrappingLibrary, starts_ddp=False)
LIBRARIES = (
    _row("transformers.Trainer", "2.9", r"transformers\.(\w+\.)*(Seq2Seq)?Trainer"),
    _row("trl", "0.4.2", r"trl\.(\w+\.)*\w+Trainer", refused="trl 1.15 ends with an error instead: it wants torchrun"),
    _row("sentence-transformers", "3.0", r"sentence_transformers\.(\w+\.)*\w+Trainer"),
    _row("sentence-transformers", "3.0",
         r"sentence_transformers\.(\w+\.)*(SentenceTransformer|CrossEncoder|SparseEncoder)", method="fit"),
    _row("setfit", "1.1", r"setfit\.(\w+\.)*\w*Trainer"),
    _other("Lightning Fabric", "1.5", rf"{_FABRIC}\.(\w+\.)*(Fabric|LightningLite)",
           switch=("strategy", "accelerator"), instead=_OF_FABRIC),
    _other("Lightning", "0.2", rf"{_PL}\.(\w+\.)*Trainer", refused='Lightning 2 has no "dp" any more',
           switch=("strategy", "accelerator", "distributed_backend"), instead=_LIGHTNING),
    _other("ignite", "0.4", r"ignite\.distributed\.(auto\.)?auto_model", instead=_IGNITE),
    _other("fastai", "2.0", r"fastai\.(\w+\.)*\w*[Ll]earner", method="to_parallel", instead=_FASTAI),
    _other("fastai", "2.0", r"fastai\.(\w+\.)*\w*[Ll]earner", method="parallel_ctx", instead=_FASTAI),
    _other("fastai", "2.0", r"fastai\.(\w+\.)*ParallelTrainer", instead=_FASTAI),
)  # fmt: skip
UNASKED = ("transformers", "trl", "sentence_transformers", "setfit")  # that wrap without being told
# A text search rejects what cannot matter, before anything is parsed.
IMPORTS = re.compile(
    rf"^\s*(?:from|import)\s+(?:{'|'.join(UNASKED)}|lightning|lightning_fabric|pytorch_lightning|ignite|fastai)\b",
    re.MULTILINE,
)


def wrapping_library(dotted: str | None, method: str = "") -> WrappingLibrary | None:
    """The row of a class or function; with `method`, of that method of what it makes."""
    if not dotted:
        return None
    rows = (each for each in LIBRARIES if each.method == method and re.fullmatch(each.used, dotted))
    return next(rows, None)


@dataclass(frozen=True)
class Differs:
    """What an argument of a Trainer changes: gradients are others on ranks than under DataParallel."""

    usual: object  # its value where it is not said, and changes nothing
    because: Reason  # without an advice: other random numbers, which is worth a note


_TOO_LARGE = Reason(
    "gradients-too-large", "{argument}: loss and gradients are W times too large under DataParallel, by a fault of "
    "transformers; on ranks they are right",
    "accept it; a learning rate that was found under DataParallel may have to grow"
)  # fmt: skip
_LEFT_OUT = Reason(
    "left-out-under-dataparallel", "{argument}: left out under DataParallel, by a fault of transformers: full float32 "
    "there; ranks do as they are told",
    "accept it; or leave it out of both"
)  # fmt: skip
DROPS = "dataloader_drop_last"
DIFFERENT = {  # as measured with transformers 5.24
    "label_smoothing_factor": Differs(0, _TOO_LARGE),
    "compute_loss_func": Differs(None, _TOO_LARGE),
    "bf16": Differs(False, _LEFT_OUT),
    "fp16": Differs(False, _LEFT_OUT),
    "average_tokens_across_devices": Differs(True, Reason(
        "ranks-weigh-alike", "{argument}: ranks weigh alike, however many tokens each has",
        "leave it at True, as it is without being said"
    )),
    "resume_from_checkpoint": Differs(False, Reason(
        "other-start",
        "{argument}: a checkpoint that the other start has written goes on with other random numbers"
    )),
}  # fmt: skip
DRAWN = Reason(
    "drawn-rank-by-rank", "what this draws is drawn rank by rank: not DataParallel's numbers, but as random"
)
PADDED = Reason(
    "padded-rank-by-rank",
    "ranks pad to the longest of their own rows: dropout draws other numbers then, but as random",
)
COLLATORS = {  # of a batch, on the ranks
    **{f"DataCollatorFor{what}": DRAWN for what in ("LanguageModeling", "WholeWordMask", "PermutationLanguageModeling")},
    **{f"DataCollator{what}": PADDED for what in ("WithPadding", "ForSeq2Seq", "ForTokenClassification")},
}  # fmt: skip
# Losses of sentence-transformers that compare rows with each other.
COUPLING = re.compile(
    r"sentence_transformers\.(\w+\.)*((Cached|Sparse)*MultipleNegatives(Symmetric)?Ranking|(Cached)?GISTEmbed|CoSENT|AnglE"
    r"|Batch\w+Triplet|OnlineContrastive|MegaBatchMargin|ContrastiveTension\w*)Loss\w*"
)
GATHERS = "gather_across_devices"  # measured: gradients are those of the whole batch then
