"""docs/living_with_it.md: each diff of the page is applied to a conversion and its original, and both train the same.

A diff on the page is the owner's edit of the conversion. The original gets the same edit in its own words: where the
conversion has a helper, the original has what the helper stands for.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from covering import slow_but_for

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from tests.living.verifying import findings, verified
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun
ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "living_with_it.md"
EXAMPLE = ROOT / "examples" / "cifar_bn"
SHORT = ("--epochs", "2", "--workers", "0")
WORDS_OF_THE_ORIGINAL = (
    (r"\bRank0Loader\(", "DataLoader("),
    (r"\bsave_on_rank0\(", "torch.save("),
    (r"\brun_on_rank0\(([\w.]+), ", r"\1("),
    (r'"online" if dist.get_rank\(\) == 0 else "disabled"', '"online"'),
)
# wandb, but for the network: what is logged goes to a file
STAND_IN = """
import json

def init(project, mode):
    global file
    file = open("logged.jsonl", "w") if mode == "online" else None

def log(figures):
    if file:
        print(json.dumps(figures), file=file, flush=True)
"""


def diffs(heading: str) -> list[str]:
    """The diffs of one section of the page, in their order."""
    section = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(f"{heading}\n")]
    return re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def edited(script: str, diff: str) -> str:
    """The script with each hunk's old lines replaced by its new ones; the last line of each may be cut short."""
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines()
        old = "\n".join(line[1:] for line in lines if line[:1] in " -")
        new = "\n".join(line[1:] for line in lines if line[:1] in " +")
        assert script.count(f"\n{old}") == 1, f"{script.count(old)} times in the script:\n{old}"
        script = script.replace(f"\n{old}", f"\n{new}")
    return script


def in_words_of_the_original(text: str) -> str:
    for pattern, words in WORDS_OF_THE_ORIGINAL:
        text = re.sub(pattern, words, text)
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with the stand-in."""
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "wandb.py").write_text(STAND_IN)
    return tmp_path


def edit(folder: Path, diff: str, *, both: bool = True) -> None:
    """The diff, in the conversion; and, in its own words, in the original."""
    converted, original = folder / "train_ddp.py", folder / "train.py"
    converted.write_text(edited(converted.read_text(), diff))
    if both:
        original.write_text(edited(original.read_text(), in_words_of_the_original(diff)))


EDITS = ("Another batch size", "A metric", "A second loader", "A scheduler", "A logger")


@pytest.mark.parametrize("heading", slow_but_for(EDITS[2:3], EDITS, str))
def test_an_edit_of_the_page_leaves_both_the_same(server: Server, folder: Path, heading: str) -> None:
    before = (folder / "train.py").read_text()
    for diff in diffs(heading):
        edit(folder, diff)
    assert (folder / "train.py").read_text() != before
    verdict = verified(server, folder, SHORT)
    assert verdict.same, findings(verdict)


def test_what_a_tracker_and_a_file_got_is_there(server: Server, folder: Path) -> None:
    """The comparison above would not see a tracker that is switched off everywhere."""
    for diff in diffs("A logger"):
        edit(folder, diff)
    run = watch([server.start(stage(folder, "ddp", SHORT))], 120.0)[0]
    assert not run.failure
    logged = (folder / "logged.jsonl").read_text().splitlines()
    assert len(logged) == 2
    assert len((folder / "losses.csv").read_text().splitlines()) == 2 * 7  # steps of two epochs


def stage(folder: Path, mode: Any, arguments: tuple[str, ...], world: int = 2) -> Stage:
    return stage_of(folder / "train_ddp.py", mode, world=world, arguments=arguments)


def test_a_run_is_resumed_on_another_number_of_ranks(server: Server, folder: Path) -> None:
    run = watch([server.start(stage(folder, "ddp", ("--epochs", "1", "--workers", "0")))], 120.0)[0]
    assert not run.failure
    assert (folder / "checkpoint" / "best.pth").exists()
    shutil.rmtree(folder / "run")
    verdict = verified(server, folder, (*SHORT, "--resume"), world=3)
    assert verdict.same, findings(verdict)
    assert verdict.float64.steps == 7, "one epoch was left"


@pytest.mark.parametrize(
    "count", [pytest.param(1, id="files", marks=pytest.mark.slow), pytest.param(2, id="files and loaders")]
)
def test_helpers_are_taken_out_one_after_the_other(server: Server, folder: Path, count: int) -> None:
    for diff in diffs("Taking the helpers out by hand")[:count]:
        edit(folder, diff, both=False)
    assert "save_on_rank0" not in (folder / "train_ddp.py").read_text()
    verdict = verified(server, folder, SHORT)
    assert verdict.same, findings(verdict)


@pytest.mark.slow
def test_without_the_wrapper_it_trains_the_same_with_the_same_random_numbers(
    server: Server, folder: Path
) -> None:
    edit(folder, diffs("Taking the helpers out by hand")[2], both=False)
    assert "ddp_helpers" not in (folder / "train_ddp.py").read_text()
    verdict = verified(server, folder, SHORT)
    assert not verdict.same
    assert verdict.random_only, findings(verdict)


PLAIN_LOADER = "extraloader = Rank0Loader(extraset, batch_size=20, shuffle=True, num_workers=args.workers)"


@pytest.mark.slow
def test_a_loader_that_is_left_as_it_is_makes_the_same_batches_on_each_rank(
    server: Server, folder: Path
) -> None:
    edit(folder, diffs("A second loader")[0])
    replace_in(folder, PLAIN_LOADER, in_words_of_the_original(PLAIN_LOADER))
    replace_in(folder, "import torch\n", "import torch\nfrom torch.utils.data import DataLoader\n")
    assert verified(server, folder, SHORT).same


@pytest.mark.slow
def test_a_distributed_sampler_is_found_wrong(server: Server, folder: Path) -> None:
    edit(folder, diffs("A second loader")[0])
    sampled = PLAIN_LOADER.replace("shuffle=True", "sampler=DistributedSampler(extraset)")
    replace_in(folder, PLAIN_LOADER, sampled.replace("Rank0Loader", "DataLoader"))
    imports = "import torch\nfrom torch.utils.data import DataLoader, DistributedSampler\n"
    replace_in(folder, "import torch\n", imports)
    verdict = verified(server, folder, SHORT)
    assert not verdict.same


@pytest.mark.slow
def test_a_file_that_every_rank_writes_is_found(server: Server, folder: Path) -> None:
    edit(folder, diffs("A logger")[1])
    replace_in(folder, "run_on_rank0(note, ", "note(")
    verdict = verified(server, folder, SHORT)
    assert not verdict.same
    assert verdict.float64.same, "the training is the same"


def test_a_forward_on_rank_0_alone_ends_the_run_and_is_named(server: Server, folder: Path) -> None:
    samples = "net(torch.zeros(4, 3, 32, 32).to(device))"
    lines = "    test(epoch)\n    torch.set_grad_enabled(False)\n    {0}\n    torch.set_grad_enabled(True)\n"
    for name, call in (("train.py", samples), ("train_ddp.py", f"if dist.get_rank() == 0: {samples}")):
        text = (folder / name).read_text().replace("    test(epoch)\n", lines.format(call))
        (folder / name).write_text("import torch.distributed as dist\n" + text)
    with pytest.raises(RunError, match=r"ddp mode on rank \d of 2|hangs .*\n *rank 0 waits in"):
        verified(server, folder, SHORT, timeout=20.0)


def replace_in(folder: Path, old: str, new: str) -> None:
    """Once, in the conversion."""
    text = (folder / "train_ddp.py").read_text()
    assert text.count(old) == 1
    (folder / "train_ddp.py").write_text(text.replace(old, new))
