"""Records: what is written is what is read, also after a crash; sketches tell how far apart two tensors are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp2ddp.errors import TraceError
from dp2ddp.trace.records import End, Layout, Vector, bits_hash, read_trace, sketch
from dp2ddp.trace.writer import Line, Writer

LAYOUT = Layout(("weight", "bias"), ((2, 3), (2,)), ("float32", "float32"))


def full(values: np.ndarray) -> Vector:
    hashes = [bits_hash(values[place].tobytes()) for place in LAYOUT.slices]
    return Vector(np.array(hashes, dtype=np.uint64), values, None)


def write(folder: Path, steps: int, ended: bool = True) -> Writer:
    writer = Writer(folder / "rank0")
    layout = writer.write_layout(LAYOUT)
    for step in range(steps):
        line = Line(step, 0, layout, [0.1], [float(step)], [(2, 1)])
        writer.write_step(
            line, full(np.full(8, step, dtype=np.float32)), full(np.arange(8, dtype=np.float32))
        )
    if ended:
        writer.write_end(End(steps, (), (), False), {"running_mean": np.ones(3)})
    return writer


def test_steps_come_back_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path, 3)
    steps = list(read_trace(tmp_path, 0).steps())
    assert [step.losses for step in steps] == [(0.0,), (1.0,), (2.0,)]
    assert steps[2].gradients.values is not None
    assert steps[2].gradients.values.tolist() == [2.0] * 8
    assert steps[1].rows == ((2, 1),)
    assert steps[0].layout == LAYOUT


def test_buffers_and_the_end_come_back(tmp_path: Path) -> None:
    write(tmp_path, 1)
    trace = read_trace(tmp_path, 0)
    assert trace.buffers()["running_mean"].tolist() == [1.0, 1.0, 1.0]
    assert trace.end == End(1, (), (), False)


def test_a_run_that_was_killed_leaves_the_steps_that_were_flushed(tmp_path: Path) -> None:
    writer = write(tmp_path, 2, ended=False)
    writer.flush()
    with (tmp_path / "rank0" / "steps.jsonl").open("a") as file:
        file.write('{"step": 2, "optim')  # killed within a line
    trace = read_trace(tmp_path, 0)
    assert len(list(trace.steps())) == 2
    assert trace.end is None


def test_no_record_is_an_error_that_names_the_rank(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="rank 3 left no record"):
        read_trace(tmp_path, 3)


def test_nothing_in_a_record_is_a_pickle(tmp_path: Path) -> None:
    write(tmp_path, 1)
    endings = {path.suffix for path in (tmp_path / "rank0").iterdir()}
    assert endings == {".jsonl", ".json", ".safetensors"}


@pytest.mark.parametrize("size", [1, 7, 5000, 3 * 2**14 + 5])
def test_a_sketch_tells_the_size_of_a_difference(size: int) -> None:
    generator = np.random.default_rng(size)
    a, d = generator.standard_normal(size), 1e-6 * generator.standard_normal(size)
    estimate = np.sqrt(np.mean((sketch(a + d)[2:] - sketch(a)[2:]) ** 2))
    assert 0.1 < estimate / np.linalg.norm(d) < 3  # four projections: a rough number, not a verdict


def test_a_sketch_depends_on_the_values_alone_and_not_on_larger_tensors_seen_before() -> None:
    values = np.arange(2000.0)
    before = sketch(values)
    sketch(np.zeros(100_000))
    assert (sketch(values) == before).all()


def test_one_bit_changes_the_hash() -> None:
    one = np.float32(1.0)
    assert bits_hash(one.tobytes()) != bits_hash(np.nextafter(one, np.float32(2)).tobytes())
