"""The result of `bench` in words: a table for each number of devices, and what it cannot know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dp2ddp.costs.figures import NAMES, Benchmark, Figures, Measured
from dp2ddp.report import result_document as doc
from dp2ddp.report.surroundings import surroundings_facts
from dp2ddp.words import counted, duration, size

_PROOFS = {"same": doc.Judged.GOOD, "different": doc.Judged.BAD, "not verified": doc.Judged.SHOWN}


def bench_document(benchmark: Benchmark) -> doc.Document:
    """All of it."""
    title = benchmark.port or benchmark.script
    convert = {"convert": benchmark.convert} if benchmark.convert else {}
    took = {"launch": benchmark.launch, "took": f"{benchmark.seconds:.1f} s"}
    behind = surroundings_facts("Where it was measured", {**convert, **took, **benchmark.surroundings})
    notes_of = tuple(doc.Paragraph(note, is_remark=True) for note in notes(benchmark))
    sections = doc.filled(
        *(_section(benchmark, measured) for measured in benchmark.measured),
        doc.Section("How it was measured", notes_of, "notes"),
        doc.Fold("Environment", behind, "surroundings"),
    )
    remarks = (f"It ended early: {benchmark.failure}",) if benchmark.failure else ()
    return doc.Document("bench", title, "", title, _judged(benchmark), sections, remarks)


def _judged(benchmark: Benchmark) -> doc.Judged:
    proofs = [measured.sameness.proof for measured in benchmark.measured]
    if benchmark.failure:
        return doc.Judged.UNKNOWN
    return doc.Judged.BAD if "different" in proofs else doc.Judged.GOOD


def _section(benchmark: Benchmark, measured: Measured) -> doc.Section:
    """What is said about one number of devices."""
    world, judged = measured.world, _PROOFS[measured.sameness.proof]
    trained = doc.Row("training", (measured.sameness.words,), judged=judged)
    table = doc.Table(
        "In a step, unless it says otherwise", (NAMES["dp"], NAMES["ddp"]), (*rows(measured), trained)
    )
    return doc.Section(headline(benchmark, measured), (table,), f"w{world}", counted(world, "device"), judged)


def headline(benchmark: Benchmark, measured: Measured) -> str:
    """One sentence. Without GPUs nothing is faster than something else."""
    who = benchmark.port or benchmark.script
    if measured.dp.virtual:
        devices = counted(measured.world, "virtual device")
        dp, ddp = (duration(figures.step.median) for figures in (measured.dp, measured.ddp))
        return f"{who} on {devices}: a step takes {dp} under DataParallel, {ddp} under DDP, on the CPU"
    speed = measured.speed_up
    if measured.world == 1:
        return f"{who} on 1 device: under DDP {_times(speed)} the speed of the original"
    return f"{who} on {measured.world} devices: {_times(speed)} the speed of DataParallel"


def rows(measured: Measured) -> Iterator[doc.Row]:
    """Everything that is known of both."""
    dp, ddp = measured.dp, measured.ddp

    def row(label: str, words: Callable[[Figures], str]) -> doc.Row:
        return doc.Row(label, (words(dp), words(ddp)))

    yield row("step, median", lambda figures: duration(figures.step.median))
    yield row("p10 to p90", lambda figures: f"{duration(figures.step.p10)} to {duration(figures.step.p90)}")
    yield row("samples a second", lambda figures: f"{figures.rate:.4g}")
    # in a loader's __next__
    yield row("waiting for data", lambda figures: f"{duration(figures.waiting)} a step")
    yield row("processor time", lambda figures: f"{duration(figures.cpu)} a step")
    if dp.devices or ddp.devices:
        yield row("most on device 0", lambda figures: size(figures.devices[0]) if figures.devices else "-")
        if measured.world > 1:
            yield row("on the others", lambda figures: _span(figures.devices[1:]) if figures.devices else "-")
    if any(dp.resident) and any(ddp.resident):
        yield row("process memory", lambda figures: _span(figures.resident))
    if dp.collectives is None:
        return
    if measured.world > 1:
        yield doc.Row("between devices", (_sent(dp), _sent(ddp)))
        yield from (doc.Row(name, cells, depth=1) for name, cells in _parts(dp, ddp))


def _sent(figures: Figures) -> str:
    """All of DataParallel's process; of one rank, whose collectives all the others take part in."""
    sent = figures.sent
    if not sent.calls:
        return "nothing"
    if figures.mode == "dp":
        return f"{size(sent.bytes)} in {_count(sent.calls, 'copy', 'copies')} a step"
    return f"{size(sent.bytes)} a rank in {_count(sent.calls, 'collective')} a step"


def _parts(dp: Figures, ddp: Figures) -> Iterator[tuple[str, tuple[str, str]]]:
    for name, each in sorted(dp.copies.items(), key=lambda item: -item[1].bytes):
        yield name, (size(each.bytes), "")
    for name, each in sorted((ddp.collectives or {}).items(), key=lambda item: -item[1].bytes):
        yield name, ("", f"{size(each.bytes)} in {_number(each.calls)}")


def notes(benchmark: Benchmark) -> Iterator[str]:
    """How it was measured, and what cannot be known from it."""
    setting = benchmark.setting
    measured = sum(each.dp.steps for each in benchmark.measured[:1])
    yield (
        f"{_count(measured, 'step')} measured, in {_count(setting.rounds, 'run')} of each version, one after the other "
        f"in turn; the first {_count(setting.warm_up, 'step')} of each run dropped. Both have the same batches."
    )
    if any(each.dp.virtual for each in benchmark.measured):
        worlds = max(each.world for each in benchmark.measured)
        cores = counted(setting.processors, "processor")
        yield (
            "Virtual devices: counts, bytes, memory, processor time and waiting are known. Step times are not those of "
            f"GPUs: up to {_count(worlds, 'rank')} shared {cores}, and DataParallel's replicas took turns in one."
        )
    left_out = sum(each.left_out for pair in benchmark.measured for each in (pair.dp, pair.ddp))
    if left_out:
        yield f"{_count(left_out, 'step')} with an evaluation in between left out."
    yield from benchmark.remarks


def _span(sizes: tuple[int, ...]) -> str:
    """From the least to the most."""
    low, high = size(min(sizes)), size(max(sizes))
    return high if low == high else f"{low} to {high}"


def _number(count: float) -> str:
    return f"{count:.4g}"


def _count(number: float, noun: str, nouns: str = "") -> str:
    return f"{_number(number)} {noun if number == 1 else nouns or noun + 's'}"


def _times(factor: float) -> str:
    return f"{factor:.2f} times" if factor < 10 else f"{factor:.0f} times"
