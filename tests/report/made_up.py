"""Made-up verdicts with series, small and large, good and bad."""

from __future__ import annotations

import dataclasses

import numpy as np

from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.output_comparison import FileDifference, FilesComparison, TextComparison, UnlikeLine
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.comparison import Report
from dp2ddp.report.failure_text import BeforeFailure, failure_document, failure_text
from dp2ddp.report.script_changes import ReasonOfLine, ScriptChange
from dp2ddp.runtime.hang.stacks import Frame, RankPosition
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.runtime.stage import Stage

LOG = FileDifference(
    "log.csv",
    "line 2: '0,1.0' under DataParallel, '0,0.5' under DDP",
    ("epoch,loss\n0,1.0", "epoch,loss\n0,0.5"),
)
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&`|@{{7*7}}"


def series(
    steps: int,
    names: tuple[str, ...],
    world: int = 2,
    *,
    parted: int | None = None,
    rounding: float = 0.0,
    noise: bool = False,
) -> Series:
    """Bits that agree, or rounding; from step `parted` on the last quarter of the parameters is off."""
    random = np.random.default_rng(0)
    apart = rounding * random.uniform(0.1, 1.0, (steps, len(names))) * np.sqrt(np.arange(steps) + 1)[:, None]
    losses = 2.3 * np.exp(-np.arange(steps) / (steps / 2)) + 0.15 * random.normal(size=steps)
    ranks = np.repeat(losses[:, None], 1 + world, axis=1)
    if parted is not None:
        first = len(names) * 3 // 4
        apart[parted:, first:] = 1e-3 * (1 + np.arange(steps - parted))[:, None] ** 0.5
        ranks[parted:, 1:] += 0.03 * random.normal(size=(steps - parted, world))
    rows = np.full((steps, world), 16)
    rows[9::10] = [3] * world
    rates = 0.1 * 0.5 ** (np.arange(steps) // max(steps // 4, 1))
    return Series(
        names=names,
        steps=np.arange(steps),
        gradients=apart,
        parameters=apart / 10,
        noise=1e-16 * np.sqrt(np.arange(steps) + 1) if noise else None,
        losses=ranks,
        rows=rows,
        learning_rates=np.repeat(rates[:, None, None], 2, axis=1),
    )


def layers(count: int) -> tuple[str, ...]:
    kinds = ("conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias")
    return tuple(f"layer{index // 20}.{index // 5 % 4}.{kinds[index % 5]}" for index in range(count))


def comparison(found: Series, first: Difference | None = None) -> Comparison:
    steps, world = len(found.steps), found.rows.shape[1]
    return Comparison(
        steps=steps,
        rank_steps=(steps,) * world,
        largest=first,
        first=first,
        also=(),
        identical_steps=steps if first is None else first.step,
        identical_buffers=first is None,
        ranks_that_agree=(tuple(range(world)),) if first else (),
        rows=tuple(map(tuple, found.rows.tolist())),
        series=found,
        parts=("gradient", "parameter", "loss", "buffer"),
    )


def same(world: int = 2, steps: int = 21, parameters: int = 12) -> Verdict:
    found = series(steps, layers(parameters), world)
    single = series(steps, layers(parameters), world, rounding=1e-7, noise=True)
    return Verdict(
        world=world, float64=comparison(found), float32=comparison(single), stdout=TextComparison(11, None),
        printing_ranks=(),
        files=FilesComparison(1, ()), codes=(0, 0), seconds=(12.6, 13.3), printed=("Epoch 0\n", "Epoch 0\n"),
    )  # fmt: skip


def different(world: int = 2, steps: int = 21, parameters: int = 12, parted: int = 7) -> Verdict:
    found = series(steps, layers(parameters), world, parted=parted, rounding=1e-16)
    single = series(steps, layers(parameters), world, parted=parted, rounding=1e-7, noise=True)
    first = Difference("gradient", 1e-3, parted, 0, layers(parameters)[-1], 2.0, 4.0)
    lines = [f"Epoch {epoch}: loss {2 / (epoch + 1):.4f}, accuracy {epoch}" for epoch in range(30)]
    theirs = [*lines[:20], *(line.replace("loss 0", "loss 1") for line in lines[20:])]
    return dataclasses.replace(
        same(world, steps, parameters),
        float64=comparison(found, first),
        float32=comparison(single),
        stdout=TextComparison(30, UnlikeLine(21, lines[20], theirs[20])),
        files=FilesComparison(2, (FileDifference("best.pth", "net.fc.weight: 1.2e-03 apart"), LOG)),
        printed=("\n".join(lines), "\n".join(theirs)),
        causes=(
            Cause(
                "sum-for-mean",
                "Gradients are summed over the ranks where DataParallel takes their mean.",
                (
                    f"gradients are {world}.000 times as long: {world} = W",
                    "all ranks have the same gradients and parameters",
                ),
                "Divide the loss by the number of ranks, or let DistributedDataParallel average.",
                0.93,
                ("DDP401 train_ddp.py:88",),
            ),
            Cause("other-batches", "The ranks see other rows.", ("3 rows come twice",), "Call set_epoch.", 0.2, ()),
        ),
    )  # fmt: skip


CHANGE = ScriptChange(
    "train.py",
    "import torch\n\nnet = Net()\nnet = torch.nn.DataParallel(net)\nfor x in loader:\n    step(x)\n"
    + "# more\n" * 20,
    "import torch\n\njoin_process_group()\nnet = Net()\nnet = ExactDDP(net)\nfor x in loader:\n    step(x)\n"
    + "# more\n" * 20,
    (
        ReasonOfLine(3, "line 3", "DDP101", "each rank joins before anything random or on a device"),
        ReasonOfLine(4, "line 4", "DDP201", "a rank runs its rows on its own device; gradients: reducer"),
    ),
)
SURROUNDINGS = {"command": "dp2ddp verify train.py -n 2", "torch": "2.9.0", "seed": "20"}


def report(
    *verdicts: Verdict, changes: tuple[ScriptChange, ...] = (CHANGE,), script: str = "train.py"
) -> Report:
    return Report(script, verdicts, "torchrun --standalone train_ddp.py", 13.9, changes, SURROUNDINGS)


def failed_run(kind: str = "hang", text: str = "dist.barrier()") -> Run:
    """Of three ranks one waits, one saves, one is gone; `text` is what scripts chose."""
    frames = (Frame(f"/a/{text}.py", 88, text), Frame("/a/train_ddp.py", 120, "<module>"))
    positions = (
        RankPosition(0, frames, collective="barrier", source=text),
        RankPosition(1, frames[1:], doing="save", source="torch.save(net, path)"),
        RankPosition(2, ended=f"failed at {text}"),
    )
    stage = Stage(
        script="/a/train_ddp.py", mode="ddp", world=3, folder="/a", run_folder="/b", name="train_ddp.py"
    )
    return Run(
        stage, (None,) * 3, 9.0, Failure(kind, 1, text, positions, f"collective 3, {text}, by rank 0 alone")
    )


def failed(kind: str = "hang", text: str = "dist.barrier()") -> Report:
    run = failed_run(kind, text)
    said = f"Traceback (most recent call last):\n  {text}"
    before = BeforeFailure(
        (f"the ranks had not taken the same optimizer steps: {text}",), f"let all ranks call {text}"
    )
    return dataclasses.replace(
        report(same()),
        failure=failure_text(run, before=before),
        failed=failure_document(run, said, before=before),
    )


def evil() -> Report:
    """Every text that a script could have chosen tries to run a script."""
    verdict = different()
    names = tuple(f"{EVIL}{index}" for index in range(12))
    renamed = dataclasses.replace(series(21, names, parted=7))
    first = Difference("gradient", 1e-3, 7, 0, EVIL, 2.0, 4.0)
    verdict = dataclasses.replace(
        verdict,
        float64=comparison(renamed, first),
        stdout=TextComparison(1, UnlikeLine(1, EVIL, EVIL + "2")),
        printed=(EVIL, EVIL + "2"),
        files=FilesComparison(1, (FileDifference(EVIL, EVIL, ("a", EVIL)),)),
        causes=(Cause(EVIL, EVIL, (EVIL,), EVIL, 1.0, (EVIL,)),),
        remarks=(EVIL,),
    )
    change = ScriptChange(EVIL, f"a\n{EVIL}\n", f"b\n{EVIL}\n", (ReasonOfLine(1, "line 1", EVIL, EVIL),))
    return Report(EVIL, (verdict,), EVIL, 1.0, (change,), {EVIL: EVIL}, EVIL, failed("crash", EVIL).failed)
