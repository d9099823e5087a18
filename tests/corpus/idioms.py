"""What real DataParallel scripts contain, and which scripts of the corpus have it: `python3 tests/corpus/idioms.py`.

The rows are those of a reading of 95 public repositories; a number says how many of the 95 contain the idiom. A row
that two or more of them have must be in two scripts at least. The command prints them, as the site has them, and what
becomes of each script.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENOUGH = 2  # repositories that have an idiom, and scripts that must have it then

_ROWS = """
Spelling of the wrap
    37 nn.DataParallel
    36 torch.nn.DataParallel
    5 hand-written replicate/scatter/parallel_apply/gather
    4 functional data_parallel
    4 own data_parallel function
    3 from torch.nn.parallel import DataParallel
    3 nn.parallel.DataParallel
    3 from torch.nn import DataParallel
    2 own/vendored class
    1 own/vendored class DataParallelCriterion
    1 own/vendored class DataParallelModel
    1 own/vendored class UserScatteredDataParallel
    1 from models.data_parallel import DataParallel
    1 import torch as ch -> ch.nn.DataParallel
    1 own/vendored class BalancedDataParallel
    1 own/vendored class DataParallelWithCallback
    1 from models.py_utils.data_parallel import DataParallel
    1 from torch.nn.parallel.data_parallel import DataParallel
Where the wrap is
    43 function main/train/run
    14 module level, bare
    12 module level, under if __name__
    10 other helper function
    9 class method (__init__)
    7 class method (other)
    4 notebook cell
    1 nested function inside main()
What it is assigned to
    65 rebinds the same name
    12 self.attr = DP(...)
    10 new name, raw model kept under another name
    6 submodule obj.attr = DP(obj.attr)
    4 name = DP(Constructor(...))
    1 tuple assignment
    1 returned directly from helper
Arguments
    62 none
    24 device_ids from config/args/variable
    3 device_ids=range(device_count())
    3 dim=1
    3 device_ids literal/comprehension list
    3 output_device=
    2 chunk_sizes (unequal split)
Chained calls
    29 DP(...).cuda()
    6 DP(...).to(device)
Condition around it
    42 unconditional
    32 is CUDA available / use_cuda flag only
    11 device_count() > 1
    11 own flag (args.multi_gpu / parallel / mGPUs ...)
    10 len(gpu_ids)/num_gpus from config
    6 not distributed (DDP branch beside)
    4 architecture name (alexnet/vgg -> wrap .features only)
    3 other
Special wraps
    16 same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap)
    15 several models wrapped in one script
    6 submodule only (model.features / model.encoder), head outside
    4 wrapped model is frozen/eval-only (teacher, EMA teacher, target net)
    3 method parallelize()/multi_gpu()/set_device() does the wrap later
    1 wrap happens inside an engine/trainer factory that rebinds a local name
    1 device_ids names a single GPU (DP is a no-op used for the "module." prefix)
    1 not an nn.Module (loss tensor wrapped; crashes on >1 GPU)
Alias / API on the wrapper
    16 raw model kept and used beside the wrapper (optimizer, state_dict, eval, EMA)
    39 model.module access
    17 attributes/methods reached through .module in the training code
    6 isinstance(model, DataParallel)
    4 hasattr(model,'module')
    1 attribute set on the wrapper object
    1 try: net.module ... except: net
Inputs of the wrapped forward
    23 dict / list / non-tensor / None / raw samples passed to the wrapped forward
    11 tensors left on the CPU, DP.scatter does the copy
    8 batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits
State
    3 hidden state / memory carried from batch to batch
Where the DataLoader is
    49 DataLoader built in: same scope (relative to the wrap)
    22 DataLoader built in: other file (relative to the wrap)
    15 DataLoader built in: same file, other scope (relative to the wrap)
    9 DataLoader built in: none in closure (relative to the wrap)
Where the train loop is
    48 train loop / backward in: same file, other scope (relative to the wrap)
    31 train loop / backward in: same scope (relative to the wrap)
    14 train loop / backward in: other file (relative to the wrap)
    2 train loop / backward in: none in closure (relative to the wrap)
Optimizer vs wrap
    41 optimizer created after wrap
    13 optimizer created before wrap
Data
    64 shuffle literal True
    29 sampler=
    27 drop_last
    21 collate_fn
    20 download=True
    20 len(loader.dataset)
    17 custom sampler class
    16 order, crops or lengths drawn from np.random / random in dataset, sampler or loop
    10 training loop without torch DataLoader (own iterator, queue, replay buffer)
    8 random_split/subset
    7 dict or list of loaders
    6 DataLoader subclass or own class called DataLoader
    5 worker_init_fn
    5 batch_sampler=
    4 loader or dataset rebuilt during training
    3 DataLoader already yields whole batches (batch_size=1 or custom dataset batches)
    1 IterableDataset
Batch size
    11 batch size multiplied by the number of GPUs in the script
Loss
    20 computed inside the wrapped forward, gathered, then .mean()
    17 sum / none reduction normalised by hand
    14 mean over a data-dependent count - full batch level (after gather)
    13 mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level
    12 couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode)
    5 criterion itself wrapped / loss module replicated
    4 permutes the batch on the spot (mixup/cutmix randperm)
    2 computed inside the wrapped forward, gathered, then .sum()
Model / BN
    23 .cuda()/'cuda' without index inside forward()
    4 next(self.parameters()) reached from forward (StopIteration in DP replicas, torch>=1.5)
    2 batch statistics in forward other than BN (minibatch stddev, global memory bank)
    2 buffer or counter written in forward
    8 vendored SyncBN with DataParallelWithCallback / patch_replication_callback
    4 BN frozen or momentum scheduled in the loop
Gradients / autograd
    15 two or more backward() before one step, or forward twice before backward
    6 parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer)
    6 parameters without gradient on a step (optional heads, toggled requires_grad, unused branches)
    5 grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA)
    3 autograd.grad / create_graph through the wrapped model (attack, penalty)
    1 attack loop calls loss.backward() through the wrapped training model
    29 Variable()
    18 loss.data[0]
    14 volatile=
    5 retain_graph/create_graph/autograd.grad
    2 backward(gradient arg)
Optimizers
    42 manual adjust_learning_rate
    36 lr_scheduler
    34 p.data edits outside optimizer
    22 clip_grad
    13 several optimizers
    9 own optimizer / wrapper class (Noam, ScheduledOptim, OpenAIAdam, BertAdam, BinOp, AWP)
    8 EMA / second copy of weights
    8 gradient accumulation
    7 ReduceLROnPlateau/metric driven
    5 optimizer created (or re-created) inside the epoch loop or train()
    2 optimizer stored inside the wrapped module
Control flow
    15 args.batch_size used outside the DataLoader (loss mask, steps, lr, asserts, meters)
    11 val loss of this process drives lr / early stop / rollback
    7 len(loader) used as divisor / schedule (breaks when the loader shrinks)
    4 lr / phase / stop schedule driven by locally counted samples or tokens
    3 try/except around the step swallows errors and continues
    3 optimizer step skipped on a value of the local loss
    1 batch skipped when smaller than args.batchsize
Checkpoints
    79 torch.save
    72 torch.load
    46 best selection
    18 module.state_dict() (no prefix)
    9 prefix handled by hand (strip/replace "module.")
    8 whole module pickled (wrapper or raw)
    4 early stopping
    1 model moved to the CPU and back to save it
    1 bestStateDict alias taken without copy
Evaluation
    71 .item()
    32 correct/total counters
    30 AverageMeter
Logging / files
    47 text/csv/json log file
    38 tqdm/progress bar
    31 tensorboard
    4 sys.stdout replaced
    3 visdom
    1 wandb
    63 makedirs/mkdir
    24 rmtree/copy of code
    3 input() prompt / pdb
Device
    67 .cuda()
    37 .to(device)
    34 device_count() used
    16 non_blocking
    12 'cuda:0' literal
    11 set_device/default tensor type
    10 cuda(async=)
    10 .cuda(arg)
    22 CUDA_VISIBLE_DEVICES set in the script
RNG
    65 torch.rand* inside the train step
    51 torch.manual_seed
    42 cudnn flags
    34 np.random/random seed
AMP
    7 apex
    2 torch GradScaler/autocast
Config
    75 argparse
    26 yaml/yacs/json config
    12 args.local_rank/world_size already
DDP present
    8 has a DDP branch beside DP
Other
    79 __name__ guard
    28 global statement
    19 from x import *
    13 subprocess/os.system
    12 multiprocessing/threads/queues for data
    7 try/except around step (OOM/KeyboardInterrupt)
    4 framework loop (ignite/torchnet Engine)
"""


@dataclass(frozen=True)
class Idiom:
    """One row: what was seen, in which group of the reading, in how many of the 95 repositories."""

    group: str
    text: str
    repositories: int


@dataclass(frozen=True)
class Entry:
    """One script, as the page shows it."""

    name: str  # group/name
    idioms: tuple[str, ...]
    outcome: str  # its helpers, or the expected answer


def _read_rows(text: str) -> tuple[Idiom, ...]:
    """Groups at the margin; under each, indented, a number and the text of a row."""
    rows, group = [], ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            number, row = line.split(maxsplit=1)
            rows.append(Idiom(group, row, int(number)))
        else:
            group = line
    return tuple(rows)


IDIOMS = _read_rows(_ROWS)


def missing(entries: Sequence[Entry]) -> list[Idiom]:
    """The rows of which the corpus has too few scripts."""
    found = _scripts_by_row(entries)
    return [
        idiom for idiom in IDIOMS if idiom.repositories >= ENOUGH and len(found.get(idiom.text, ())) < ENOUGH
    ]


def page(entries: Sequence[Entry]) -> str:
    """The idioms and their scripts, a page of the site (docs/conf.py)."""
    return "\n".join([*_head(entries), *_idiom_lists(entries)]) + "\n"


def outcomes(entries: Sequence[Entry]) -> str:
    """What becomes of each script."""
    return "\n".join(_script_tables(entries)) + "\n"


def _scripts_by_row(entries: Sequence[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        for row in entry.idioms:
            found.setdefault(row, []).append(entry.name)
    return found


_HEAD = """\
# What real scripts contain

Counted in the training code of 95 public repositories with DataParallel: behind each idiom how many of the 95 have it
(losses, gradients, decisions and inputs were found by reading, and are lower bounds), and how many scripts of
`tests/corpus`; below it these scripts, by their folder. CI converts and verifies them. What becomes of an idiom:
[data, losses and models](training.md), [decisions and effects](effects.md), [rules](rules/README.md).

{scripts} scripts, {idioms} idioms; {missing} of those that two or more repositories have are in fewer than two."""


def _head(entries: Sequence[Entry]) -> list[str]:
    return [_HEAD.format(scripts=len(entries), idioms=len(IDIOMS), missing=len(missing(entries)))]


def _idiom_lists(entries: Sequence[Entry]) -> list[str]:
    found = _scripts_by_row(entries)
    lines = []
    for group in dict.fromkeys(idiom.group for idiom in IDIOMS):
        lines += ["", f"## {group}", ""]
        for idiom in IDIOMS:
            if idiom.group == group:
                lines += _item(idiom, found.get(idiom.text, []))
    return lines


def _item(idiom: Idiom, scripts: Sequence[str]) -> list[str]:
    """`- nn.DataParallel: 37 of the 95, 3 scripts`, and on the next line `data: a, b; loss: c`."""
    text = re.sub(r"([*_<\[])", r"\\\1", idiom.text)  # `from x import *`, `__name__`
    head = (
        f"- {text}: {idiom.repositories} of the 95, {len(scripts)} script{'' if len(scripts) == 1 else 's'}"
    )
    folders: dict[str, list[str]] = {}
    for script in scripts:
        folder, _, name = script.partition("/")
        folders.setdefault(folder, []).append(name)
    if not scripts:
        return [head]
    return [
        f"{head}\\",
        "  " + "; ".join(f"*{folder}*: {', '.join(names)}" for folder, names in folders.items()),
    ]


def _script_tables(entries: Sequence[Entry]) -> list[str]:
    lines = ["", "## What becomes of them", ""]
    outcomes = [entry.outcome for entry in entries]
    for outcome in sorted(set(outcomes), key=lambda one: (-outcomes.count(one), one)):
        lines.append(f"- {outcome}: {outcomes.count(outcome)}")
    lines += ["", "| script | what runs on ranks, what loads; or the answer |", "|---|---|"]
    return [*lines, *(f"| {entry.name} | {entry.outcome} |" for entry in entries)]


def _corpus() -> list[Entry]:
    """Every script, each converted."""
    from corpus.cases import all_cases
    from corpus.outcomes import outcome

    return [Entry(case.name, case.idioms, outcome(case).words) for case in all_cases()]


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / ".ci"), str(ROOT / "tests")]
    import environment

    environment.enter("dev")
    corpus = _corpus()
    print(page(corpus), outcomes(corpus), sep="\n", end="")
