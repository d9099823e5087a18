"""All that waits for a GPU, in one go: `python benchmarks/gpu.py [--out gpu.md] [--minutes 8]`; any folder will do.

The gpu tests; then ResNet-50 on made-up images, a language model, a small residual net and a GAN, each with
DataParallel, converted by `dp2ddp convert`, and ported by hand: seconds a step, processor, memory of the device a rank,
and how far the trained weights are from DataParallel's, whose own second run says how far it is from itself; then, of
the large ones, whether sums of gradients run beside backward, from a profile. With one device, two ranks share it over
gloo, and DataParallel uses it twice (device_ids=[0, 0]); with more, each rank has its own, over NCCL. Each part has a
time limit: what did not fit, or failed, is said. `--small` does the same on the processor.

Needs torch 2.4, click, jinja2 and libcst, pytest for the tests; dp2ddp need not be installed. Python 3.10.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ports import PORTS, Figures, figures_of, head, run, run_for, torchrun

ROOT = Path(__file__).resolve().parent.parent
MOST_RANKS = 4
LEAST = 5.0  # seconds that a part must have
FIRST, CONVERTED = "DataParallel", "converted"
SHARE = {  # how a port by hand runs where two ranks share a device
    'local_rank = int(os.environ["LOCAL_RANK"])': "local_rank = 0",
    '"nccl" if use_cuda else "gloo"': '"gloo"',
}
TWICE = re.compile(r"(nn\.DataParallel\(.*)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Work:
    """A folder of benchmarks/ports, the file that it leaves, and its arguments on a GPU and on a processor."""

    title: str
    folder: str
    weights: str
    arguments: Sequence[str]
    small: Sequence[str]
    is_large: bool = False  # its sums take long enough to be looked at


WORKS = (
    Work(
        "ResNet-50",
        "images",
        "images.pth",
        ("--net", "resnet50", "--batch-size", "128", "--workers", "8"),
        ("--batch-size", "4", "--workers", "1", "--size", "32"),
        is_large=True,
    ),
    Work(
        "language model",
        "lm",
        "lm.pth",
        ("--batch-size", "64", "--length", "64"),
        ("--batch-size", "4", "--length", "4"),
        is_large=True,
    ),
    Work("small residual net", "cnn", "cnn.pth", (), ("--batch-size", "8")),
    Work("GAN", "gan", "gan.pth", (), ("--batch-size", "8")),
)


@dataclass(frozen=True)
class Machine:
    """What is there."""

    devices: int
    words: str
    small: bool

    @property
    def shared(self) -> bool:
        return self.devices < 2

    @property
    def world(self) -> int:
        return 2 if self.shared else min(self.devices, MOST_RANKS)

    @property
    def steps(self) -> int:
        return 10 if self.small else 25  # the first three are left out, the profile takes four

    def variables(self) -> dict[str, str]:
        """As many devices as ranks, and no more."""
        if self.shared:
            return {}
        given = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(self.devices)))
        return {"CUDA_VISIBLE_DEVICES": ",".join(given.split(",")[: self.world])}


@dataclass
class Report:
    """What was found: printed as it comes, and written again with each line, so that a break loses nothing."""

    end: float  # when there is no time left
    out: Path | None
    has_limits: bool = True  # on parts: on a processor, other programs may take any time
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)
        self.write()

    def write(self) -> None:
        if self.out:
            self.out.write_text("\n".join([*self.lines, *self.failures]) + "\n", encoding="utf-8")

    def attempt(self, name: str, limit: float, part: Callable[..., Any], *arguments: Any) -> Any:
        """What a part gives within its limit, its last argument; else None, and the reason is kept."""
        left = self.end - time.monotonic()
        patience = min(limit, left) if self.has_limits else left
        try:
            if patience >= LEAST:
                return part(*arguments, patience)
            self.failures.append(f"\n{name}: no time was left")
        except Exception as error:
            self.failures.append(f"\n{name}: {type(error).__name__}\n\n```\n{error}\n```")
        self.write()
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the table")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    parser.add_argument("--small", action="store_true", help="on the processor, little of everything")
    parser.add_argument("--no-tests", action="store_true", help="without tests/gpu")
    parser.add_argument("--programs", nargs="+", choices=[work.folder for work in WORKS], help="only these")
    parser.add_argument(
        "--versions", nargs="+", choices=["port", CONVERTED], help="only these beside DataParallel"
    )
    options = parser.parse_args()
    works = [work for work in WORKS if work.folder in (options.programs or work.folder)]
    wanted = options.versions or ["port", CONVERTED]
    start = time.monotonic()
    end = start + 60 * options.minutes - 10
    report = Report(end, options.out and options.out.resolve(), has_limits=not options.small)
    machine = look(options.small)
    report.say(machine.words)
    with tempfile.TemporaryDirectory(prefix="gpu-") as place:
        make_importable(Path(place))
        if not options.no_tests:
            tests = report.attempt("tests/gpu", 150, run_tests, Path(place))
            report.say(f"\ntests/gpu: {tests or 'failed'}")
        laid_out = [(work, versions_of(work, Path(place), machine, wanted, report)) for work in works]
        report.say("\n" + head(TIMES))
        for work, versions in laid_out:
            compare(work, versions, machine, report)
        report.say("\n" + head(SUMS))
        for work, versions in laid_out:
            if work.is_large:
                profile(work, versions, machine, report)
    report.say(f"\n{time.monotonic() - start:.0f} s in all")
    if report.failures:
        print("\n".join(report.failures), flush=True)


def look(small: bool) -> Machine:
    import torch

    devices = 0 if small or not torch.cuda.is_available() else torch.cuda.device_count()
    if not devices and not small:
        raise SystemExit("no GPU is to be seen here; --small does the same on the processor")
    names = sorted({torch.cuda.get_device_name(number) for number in range(devices)})
    words = f"{devices} x {', '.join(names)}" if devices else "the processor"
    return Machine(devices, f"Python {platform.python_version()}, torch {torch.__version__}, {words}", small)


def make_importable(place: Path) -> None:
    """Let new processes find dp2ddp with its templates, which an installation puts inside of it."""
    with contextlib.suppress(ImportError):
        if importlib.util.find_spec("dp2ddp.templates"):
            return
    package = place / "path" / "dp2ddp"
    package.mkdir(parents=True)
    for each in (*(ROOT / "dp2ddp").iterdir(), ROOT / "templates"):
        (package / each.name).symlink_to(each)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(package.parent), os.environ.get("PYTHONPATH")])
    )


def run_tests(place: Path, patience: float) -> str:
    """The last line of pytest."""
    log = place / "tests.txt"
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests" / "gpu"), "-q", "-p", "no:cacheprovider"]
    code, errors = run_for(
        patience, [*command, f"--junitxml={place / 'tests.xml'}"], place, {**os.environ}, log
    )
    said = log.read_text(encoding="utf-8").strip()
    if code:
        raise RuntimeError(f"{code}\n{said[-3000:]}\n{errors[-1000:]}")
    return said.splitlines()[-1]


# ---- versions of a program


@dataclass(frozen=True)
class Version:
    """One way to run a program: its folder, and the command."""

    title: str
    folder: Path
    command: Sequence[str]
    variables: dict[str, str]


def versions_of(
    work: Work, place: Path, machine: Machine, wanted: Collection[str], report: Report
) -> list[Version]:
    """Lay a program out: its scripts as this machine needs them, and its conversions. DataParallel is the first."""
    folder = place / work.folder
    arguments = ["--steps", str(machine.steps), *(work.small if machine.small else work.arguments)]
    ranks = machine.variables()
    start = torchrun(machine.world)
    one_process, counted = ["train_dp", *arguments], {**ranks, "RANK": "0"}  # what has a rank is counted
    if machine.small:  # on virtual devices, which are counted
        counted = ranks
        one_process = [
            "dp2ddp",
            "run",
            "train_dp.py",
            "--mode",
            "dp",
            "-n",
            "2",
            "--virtual",
            "--",
            *arguments,
        ]
    lay_out(work, folder / "dp", machine.devices == 1)
    versions = [
        Version(title, folder / "dp", one_process, counted) for title in (FIRST, "DataParallel again")
    ]
    if "port" in wanted:
        versions.append(Version("port", folder / "dp", [*start, "train_ddp.py", *arguments], ranks))
    if CONVERTED in wanted:
        own = folder / "converted"
        lay_out(work, own, machine.devices == 1)
        if report.attempt(f"{work.title}: convert", 30, convert, own):
            versions.append(Version(CONVERTED, own, [*start, "train_converted.py", *arguments], ranks))
    return versions


def lay_out(work: Work, folder: Path, shared: bool) -> None:
    """A copy of a folder of ports; where one device stands for two, scripts say so."""
    shutil.copytree(PORTS / work.folder, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pth"))
    if not shared:
        return
    port, script = folder / "train_ddp.py", folder / "train_dp.py"
    text = port.read_text(encoding="utf-8")
    for old, new in SHARE.items():
        if text.count(old) != 1:
            raise ValueError(f"{port}: {old} is not there once")
        text = text.replace(old, new)
    port.write_text(text, encoding="utf-8")
    text, count = TWICE.subn(r"\1, device_ids=[0, 0])", script.read_text(encoding="utf-8"))
    if not count:
        raise ValueError(f"{script}: no wrap")
    script.write_text(text, encoding="utf-8")


def convert(folder: Path, patience: float) -> bool:
    command = [sys.executable, "-m", "dp2ddp", "convert", "train_dp.py", "-o", "train_converted.py"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=patience)
    if not (folder / "train_converted.py").exists():
        raise RuntimeError(told.stdout + told.stderr)
    return True


# ---- what is measured

TIMES = (
    "program, version, step, its quickest tenth, step beside the port's, processor, device memory a rank, "
    "host memory, weights differ from DataParallel's by"
)
SUMS = "program, version, sums a step, of them before backward's last function, time in sums, of it beside backward"


def compare(work: Work, versions: list[Version], machine: Machine, report: Report) -> None:
    """The rows of a program in the first table."""
    found: dict[str, tuple[Figures, float | None] | None] = {}
    for version in versions:
        name = f"{work.title}, {version.title}"
        found[version.title] = report.attempt(name, 90, measured, work, version, versions[0], machine)
    for title, one in found.items():
        cells = row(one, found.get("port")) if one else ["failed, or no time", *["-"] * 6]
        report.say(f"| {work.title} | {title} | {' | '.join(cells)} |")


def measured(
    work: Work, version: Version, first: Version, machine: Machine, patience: float
) -> tuple[Figures, float | None]:
    """Figures of a run, and how far its weights are from those of the first version."""
    ranks = run(version.folder, version.command, machine.steps, patience, **version.variables)
    left = version.folder / work.weights
    kept = version.folder / f"{version.title}.kept"
    shutil.move(left, kept)
    reference = first.folder / f"{first.title}.kept"
    return figures_of(ranks), distance(reference, kept) if reference.exists() else None


def row(one: tuple[Figures, float | None], port: tuple[Figures, float | None] | None) -> list[str]:
    figures, differs = one
    return [
        f"{figures.step * 1e3:.1f} ms",
        f"{figures.quick * 1e3:.1f} ms",
        f"{figures.step / port[0].step:.2f}" if port else "-",
        f"{figures.cpu * 1e3:.1f} ms",
        f"{figures.device / 2**20:.0f} MB" if figures.device else "-",
        f"{figures.peak / 2**20:.0f} MB",
        "-" if differs is None else f"{differs:.1e}",
    ]


def distance(left: Path, right: Path) -> float:
    """The largest difference of one tensor of weights, relative to its largest number."""
    import torch

    first, second = (
        tensors_in(torch.load(path, map_location="cpu", weights_only=True)) for path in (left, right)
    )
    differences = [
        (a.double() - b.double()).abs().max() / a.double().abs().max().clamp(min=1e-30)
        for a, b in zip(first, second, strict=True)
    ]
    return float(torch.stack(differences).max())  # NaN if there is one, which Python's max may pass over


def tensors_in(saved: Any) -> list[Any]:
    """The weights in a file: of a model, of several, or of a checkpoint with the optimizer's state beside them."""
    if not isinstance(saved, dict):
        return [saved]
    return [tensor for each in saved.get("model", saved).values() for tensor in tensors_in(each)]


def profile(work: Work, versions: list[Version], machine: Machine, report: Report) -> None:
    """The rows of a program in the second table."""
    for version in versions[2:]:  # DataParallel's device 0 sums by itself
        name = f"{work.title}, {version.title}, profile"
        variables = {**version.variables, "COUNTS_OVERLAP": "1"}
        ranks = report.attempt(name, 60, profiled, version, machine, variables)
        cells = ["failed, or no time", "-", "-", "-"]
        if ranks:
            one = ranks[0]
            share = one["beside"] / one["seconds"] if one["seconds"] else 0.0
            cells = [
                f"{one['sums']:g}",
                f"{one['early']:g}",
                f"{one['seconds'] * 1e3:.2f} ms",
                f"{share:.0%}",
            ]
        report.say(f"| {work.title} | {version.title} | {' | '.join(cells)} |")


def profiled(version: Version, machine: Machine, variables: dict[str, str], patience: float) -> Any:
    return run(version.folder, version.command, machine.steps, patience, **variables)


if __name__ == "__main__":
    main()
