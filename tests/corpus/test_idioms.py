"""The corpus against what real scripts contain."""

from __future__ import annotations

import re

import pytest
from corpus.cases import all_cases
from corpus.idioms import IDIOMS, ROOT, Entry, missing, page

CASES = all_cases()
ROWS = {idiom.text for idiom in IDIOMS}


def test_the_rows_are_read_whole() -> None:
    assert len(IDIOMS) == len(ROWS) == 187
    assert max(IDIOMS, key=lambda idiom: idiom.repositories).text == "torch.save"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_tag_of_a_script_is_a_row(case) -> None:
    assert [tag for tag in case.idioms if tag not in ROWS] == []


def test_every_idiom_of_two_repositories_is_in_two_scripts() -> None:
    entries = [Entry(case.name, case.idioms, "") for case in CASES]
    lacking = [f"{idiom.group}: {idiom.text} ({idiom.repositories})" for idiom in missing(entries)]
    assert not lacking, f"{len(lacking)} rows need more scripts:\n" + "\n".join(lacking)


def test_the_page_has_a_line_for_each_idiom_and_for_each_script() -> None:
    lines = page([Entry(case.name, case.idioms, "converted") for case in CASES]).splitlines()
    assert sum(": " in line and " of the 95, " in line for line in lines) == len(IDIOMS)
    assert [case.name for case in CASES if f"| {case.name} | converted |" not in lines] == []
    assert f"- converted: {len(CASES)}" in lines


# docs/idioms.md: how a line of its tables begins, and the rows of which each of its numbers is the sum
SHORT_VERSION = {
    "`device_ids` from": [
        (
            "device_ids from config/args/variable",
            "device_ids=range(device_count())",
            "device_ids literal/comprehension list",
        )
    ],
    "`dim=1`": ["dim=1", "chunk_sizes (unequal split)"],
    "functional `data_parallel`": [
        "functional data_parallel",
        "hand-written replicate/scatter/parallel_apply/gather",
    ],
    "a subclass": [
        (
            "own/vendored class",
            "own/vendored class DataParallelCriterion",
            "own/vendored class DataParallelModel",
            "own/vendored class UserScatteredDataParallel",
            "own/vendored class BalancedDataParallel",
            "own/vendored class DataParallelWithCallback",
        )
    ],
    "several wrapped": [
        "several models wrapped in one script",
        "same model wrapped at more than one place (exclusive branches, train/test functions, re-wrap)",
    ],
    "only a part": ["submodule only (model.features / model.encoder), head outside"],
    "wrapped only for": [
        'device_ids names a single GPU (DP is a no-op used for the "module." prefix)',
        "wrapped model is frozen/eval-only (teacher, EMA teacher, target net)",
    ],
    "`model.module`": [
        "model.module access",
        "isinstance(model, DataParallel)",
        "hasattr(model,'module')",
    ],
    "a loss tensor": ["not an nn.Module (loss tensor wrapped; crashes on >1 GPU)"],
    "the wrap in a notebook": ["notebook cell"],
    "batch norm": ["vendored SyncBN with DataParallelWithCallback / patch_replication_callback"],
    "`shuffle=True`": ["shuffle literal True", "sampler=", "custom sampler class", "batch_sampler="],
    "order, crops": ["order, crops or lengths drawn from np.random / random in dataset, sampler or loop"],
    "loops without": [
        "training loop without torch DataLoader (own iterator, queue, replay buffer)",
        "multiprocessing/threads/queues for data",
    ],
    "`download=True`": ["download=True"],
    "dicts, lists": ["dict / list / non-tensor / None / raw samples passed to the wrapped forward"],
    "tensors on the CPU": ["tensors left on the CPU, DP.scatter does the copy"],
    "hidden state": ["hidden state / memory carried from batch to batch"],
    "batch size times": ["batch size multiplied by the number of GPUs in the script"],
    "a loss in forward": [
        "computed inside the wrapped forward, gathered, then .mean()",
        "computed inside the wrapped forward, gathered, then .sum()",
    ],
    "mean over a count": [
        "mean over a data-dependent count - full batch level (after gather)",
        "mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level",
    ],
    "losses that couple": [
        "couples samples of the batch (contrastive/triplet/relational/NCE/topk/episode)",
        "permutes the batch on the spot (mixup/cutmix randperm)",
    ],
    "several `backward()`": [
        "two or more backward() before one step, or forward twice before backward",
        "autograd.grad / create_graph through the wrapped model (attack, penalty)",
    ],
    "parameters trained outside": [
        "parameters trained outside the wrapper (center loss, margin head, KD adaptors, top_layer)",
        "parameters without gradient on a step (optional heads, toggled requires_grad, unused branches)",
    ],
    "accumulation": [
        "gradient accumulation",
        "clip_grad",
        "grads or params edited between backward and step (rescale, binarise, AWP, ortho, accumulate EMA)",
    ],
    "plateaus": ["ReduceLROnPlateau/metric driven", "early stopping", "best selection"],
    "GradScaler": ["torch GradScaler/autocast", "apex"],
    "`.cuda()` without": [".cuda()/'cuda' without index inside forward()"],
    "`next(self.parameters())`": [
        "next(self.parameters()) reached from forward (StopIteration in DP replicas, torch>=1.5)"
    ],
    "a buffer": ["buffer or counter written in forward"],
    "random numbers": ["torch.rand* inside the train step"],
    "`torch.save`": ["torch.save", "torch.load", "whole module pickled (wrapper or raw)"],
    "makedirs": ["makedirs/mkdir", "rmtree/copy of code", "text/csv/json log file", "tensorboard"],
    "progress bars": ["tqdm/progress bar", "sys.stdout replaced"],
    "`.item()`": [".item()", "AverageMeter", "correct/total counters"],
    "`input()`": ["input() prompt / pdb"],
    '`"cuda:0"`': ["'cuda:0' literal", "device_count() used", "CUDA_VISIBLE_DEVICES set in the script"],
    "`cuda(async=True)`": ["cuda(async=)"],
    "a DDP branch": ["has a DDP branch beside DP", "args.local_rank/world_size already"],
    "programs started": ["subprocess/os.system"],
}


def counted_lines() -> list[tuple[str, list[int]]]:
    """Of docs/idioms.md: the idiom of each line that has numbers, and the numbers; what brackets add is not counted."""
    text = (ROOT / "docs" / "idioms.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.*?) \| (.*?) \| .* \|$", text, re.MULTILINE)
    numbers = [(idiom, re.findall(r"\d+", re.sub(r"\(.*?\)", "", count))) for idiom, count in cells]
    return [(idiom, list(map(int, each))) for idiom, each in numbers if idiom != "idiom" and each]


def test_the_numbers_of_the_short_version_are_those_of_the_rows() -> None:
    repositories = {idiom.text: idiom.repositories for idiom in IDIOMS}
    lines = counted_lines()
    assert len(lines) == len(SHORT_VERSION)
    for text, numbers in lines:
        (rows,) = [rows for begin, rows in SHORT_VERSION.items() if text.startswith(begin)]
        sums = [
            sum(repositories[row] for row in ([each] if isinstance(each, str) else each)) for each in rows
        ]
        assert numbers == sums, text


def test_the_short_version_says_how_many_idioms_there_are() -> None:
    text = (ROOT / "docs" / "idioms.md").read_text(encoding="utf-8")
    assert f"has all {len(IDIOMS)} idioms" in text
