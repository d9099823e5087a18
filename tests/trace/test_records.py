"""Records: what is written is what is read, also after a crash; sketches tell how far apart two tensors are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.errors import TraceError
from dp2ddp.trace.digests import bits_hash
from dp2ddp.trace.records import Draw, End, Events, Forward, Layout, Vector, read_trace
from dp2ddp.trace.writer import StepLine, Writer

LAYOUT = Layout(("weight", "bias"), ((2, 3), (2,)), ("float32", "float32"))


def full(values: np.ndarray) -> Vector:
    hashes = [bits_hash(values[place].tobytes()) for place in LAYOUT.slices]
    return Vector(np.array(hashes, dtype=np.uint64), values, None)


def write(folder: Path, steps: int, ended: bool = True) -> Writer:
    writer = Writer(folder / "rank0")
    layout = writer.write_layout(LAYOUT)
    for step in range(steps):
        line = StepLine(
            step=step,
            optimizer=0,
            layout=layout,
            learning_rates=(0.1,),
            losses=(float(step),),
            forwards=(Forward(True, (2, 1), (7 + step, 8, 2**64 - 1)),),
        )
        gradients, parameters = np.full(8, step, dtype=np.float32), np.arange(8, dtype=np.float32)
        writer.write_step(line, {"gradients": full(gradients), "parameters": full(parameters)})
    if ended:
        writer.write_end(End(steps=steps), {"running_mean": np.ones(3)})
    return writer


def test_steps_come_back_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path, 3)
    steps = list(read_trace(tmp_path, 0).steps())
    assert [step.losses for step in steps] == [(0.0,), (1.0,), (2.0,)]
    assert steps[2].gradients.values.tolist() == [2.0] * 8
    assert steps[1].rows == ((2, 1),)
    assert steps[0].layout == LAYOUT


def test_all_that_happened_since_the_step_before_comes_back(tmp_path: Path) -> None:
    events = Events(
        losses=(1.5,),
        forwards=(Forward(True, (2, 1), (1, 2, 2**64 - 1)), Forward(False, (1,), (5,))),
        draws=(Draw(0, (3, 1), (2**64 - 2,)), Draw(1, None)),
        clips=(0.25,),
        skipped=1,
        scheduled=2,
        precision=("float16",),
        collectives=(("all_reduce", 3),),
    )
    fields = {field.name: getattr(events, field.name) for field in dataclasses.fields(events)}
    writer = Writer(tmp_path / "rank0")
    ones = full(np.ones(8, dtype=np.float32))
    state, buffers = (
        Layout(("exp_avg of weight",), ((2, 3),), ("float32",)),
        Layout(("mean",), ((2,),), ("float64",)),
    )
    line = StepLine(
        step=0,
        optimizer=0,
        layout=writer.write_layout(LAYOUT),
        state=writer.write_layout(state, "state"),
        buffers=writer.write_layout(buffers, "buffers"),
        learning_rates=(0.1,),
        **fields,
    )
    others = {"unclipped": ones, "state": full(np.zeros(8)), "buffers": Vector(ones.hashes[:1], None, None)}
    writer.write_step(line, {"gradients": ones, "parameters": ones, **others})
    writer.write_end(End(steps=1, **fields), {})
    trace = read_trace(tmp_path, 0)
    (step,) = trace.steps()
    assert all(getattr(step, name) == value == getattr(trace.end, name) for name, value in fields.items())
    assert step.rows == ((2, 1), (1,))
    assert trace.rows() == step.rows * 2
    assert step.unclipped.layout == step.gradients.layout == LAYOUT
    assert step.state.layout == state
    assert step.buffers.layout == buffers
    assert trace.layouts == (LAYOUT,)


def test_the_start_of_each_optimizer_comes_back_in_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rank0")
    for optimizer, name in enumerate(("critic", "actor")):
        parameters = Vector(
            np.array([5], dtype=np.uint64), np.full(2, optimizer), None, one(f"{name}.weight")
        )
        buffers = Vector(np.array([6], dtype=np.uint64), np.ones(2), None, one(f"{name}.mean"))
        writer.write_initial(optimizer, {"parameters": parameters, "buffers": buffers})
    initial = read_trace(tmp_path, 0).initial()
    assert initial.layout.names == ("critic.weight", "critic.mean", "actor.weight", "actor.mean")
    assert initial.values.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]


def one(name: str) -> Layout:
    return Layout((name,), ((2,),), ("float64",))


def test_buffers_and_the_end_come_back(tmp_path: Path) -> None:
    write(tmp_path, 1)
    trace = read_trace(tmp_path, 0)
    assert trace.buffers()["running_mean"].tolist() == [1.0, 1.0, 1.0]
    assert trace.end == End(steps=1)


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


def test_one_bit_changes_the_hash() -> None:
    one = np.float32(1.0)
    assert bits_hash(one.tobytes()) != bits_hash(np.nextafter(one, np.float32(2)).tobytes())
