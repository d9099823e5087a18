"""Steps are matched by meaning: by the parameters of their optimizers, and by the rows that went into them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.compare import Comparison, compare
from dp2ddp.comparison.matching import match, order_of, plain_name
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import Draw, End, Forward, Layout, Trace, read_trace
from dp2ddp.trace.writer import StepLine, Writer
from tests.comparison.traces import GRADIENT, LAYOUT, Taken, named, record, two_optimizers

TURNED = Layout(("conv.bias", "conv.weight"), ((2,), (3,)), ("float64", "float64"))
OTHER = Layout(("head.weight",), ((4,),), ("float64",))
HEAD = np.array([3.0, 1.0, -1.0, 0.5])
turned = Taken(np.concatenate([GRADIENT[3:], GRADIENT[:3]]), TURNED)


def both(tmp_path: Path, expected: list[Taken], actual: list[Taken], port: bool = True) -> Comparison:
    return compare(record(tmp_path / "dp", expected), [record(tmp_path / "ddp", actual)], FLOAT64, port=port)


def test_parameters_in_another_order_are_the_same_parameters(tmp_path: Path) -> None:
    found = both(tmp_path, [Taken(GRADIENT)] * 3, [turned] * 3)
    assert found.identical_steps == 3
    assert found.same
    assert not found.series.gradients.any()


def test_two_layers_of_one_shape_in_another_order_are_not_mixed_up(tmp_path: Path) -> None:
    ab = Layout(("a", "b"), ((2,), (2,)), ("float64",) * 2)
    ba = Layout(("b", "a"), ((2,), (2,)), ("float64",) * 2)
    values = np.array([1.0, 2.0, 3.0, 4.0])
    found = both(tmp_path, [Taken(values, ab)], [Taken(np.array([3.0, 4.0, 1.0, 2.0]), ba)])
    assert found.same
    assert not both(tmp_path / "swapped", [Taken(values, ab)], [Taken(values, ba)]).same


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("module.conv.weight", "module.conv.bias"), (0, 1)),
        (("_orig_mod.conv.weight", "_forward_module.conv.bias"), (0, 1)),
        (("first.weight", "first.bias"), (0, 1)),  # renamed: the order is all there is
    ],
)
def test_wrappers_and_new_names_do_not_matter(names: tuple[str, ...], order: tuple[int, ...]) -> None:
    assert order_of(LAYOUT, Layout(names, LAYOUT.shapes, LAYOUT.dtypes)) == order


def test_other_tensors_are_other_tensors(tmp_path: Path) -> None:
    assert order_of(LAYOUT, OTHER) is None
    found = both(tmp_path, [Taken(GRADIENT)], [Taken(HEAD, OTHER)])
    assert found.first.kind == "layout"


def test_optimizers_that_take_turns_the_other_way_round_are_matched(tmp_path: Path) -> None:
    body, head = Taken(GRADIENT), Taken(HEAD, OTHER, optimizer=1)
    expected = [body, head] * 2
    actual = [Taken(HEAD, OTHER, optimizer=0), Taken(GRADIENT, optimizer=1)] * 2
    found = both(tmp_path, expected, actual)
    assert found.same
    assert found.matched == ((1, 0, 3, 2),)
    assert found.identical_steps == 4


def test_the_shards_of_zero_are_left_out_and_said(tmp_path: Path) -> None:
    shard = Taken(np.array([0.25, 0.125]), Layout(("conv.bias",), ((2,),), ("float64",)), optimizer=1)
    found = both(tmp_path, [Taken(GRADIENT)] * 2, [shard, Taken(GRADIENT)] * 2)
    assert found.same
    assert found.rank_steps == (2,)
    assert any("2 steps of optimizers" in remark for remark in found.remarks)


def test_steps_that_fit_are_matched_in_order(tmp_path: Path) -> None:
    reference = record(tmp_path / "dp", [Taken(GRADIENT)] * 3)
    assert match(reference, record(tmp_path / "ddp", [Taken(GRADIENT)] * 2)).steps == (0, 1)


# ---- what else a step is judged by


def test_another_start_is_named_before_what_follows_from_it(tmp_path: Path) -> None:
    start = {"conv.weight": np.ones(3), "conv.bias": np.zeros(2)}
    reference = record(tmp_path / "dp", [Taken(GRADIENT)], initial=start)
    same = [record(tmp_path / "a", [Taken(GRADIENT)], rank=rank, initial=start) for rank in (0, 1)]
    assert compare(reference, same, FLOAT64).first is None
    moved = {**start, "conv.weight": np.array([1.0, 1.0, 1.5])}
    ranks = [same[0], record(tmp_path / "b", [Taken(GRADIENT * 2)], rank=1, initial=moved)]
    found = compare(reference, ranks, FLOAT64)
    assert (found.first.kind, found.first.name, found.first.rank) == ("initial state", "conv.weight", 1)


def test_two_models_may_use_one_name(tmp_path: Path) -> None:
    """netG.main.0.weight and netD.main.0.weight are both called main.0.weight."""

    def begun(folder: str, values: tuple[float, float]) -> Trace:
        return two_optimizers(tmp_path / folder, ("conv.weight", "conv.weight"), values, values[1])

    reference = begun("dp", (1.0, 2.0))
    assert compare(reference, [begun("a", (1.0, 2.0))], FLOAT64).same
    found = compare(reference, [begun("b", (1.0, 3.0))], FLOAT64).first
    assert (found.kind, found.name) == ("parameter", "conv.weight")


def test_a_later_optimizer_may_take_over_what_rounding_has_touched(tmp_path: Path) -> None:
    """Weights that were moved before its first step are as far apart as parameters were then."""

    def begun(folder: str, start: float, trained: float = 2.0) -> Trace:
        return two_optimizers(tmp_path / folder, ("conv.weight", "line.weight"), (1.0, start), trained)

    reference, nudged = begun("dp", 2.0), begun("nudged", 2.0, 2.0 + 1e-9)
    assert compare(reference, [begun("a", 2.0 + 1e-9)], FLOAT64, nudged).same
    for folder, start, moved in (("b", 2.0 + 1e-9, None), ("c", 2.0 + 1e-5, nudged)):
        found = compare(reference, [begun(folder, start)], FLOAT64, moved).first
        assert (found.kind, found.step, found.name) == ("initial state", 1, "line.weight")


def test_a_second_optimizer_of_the_same_weights_finds_what_the_first_has_left(tmp_path: Path) -> None:
    """A bias in front of BatchNorm is far apart by then: its gradient is nothing but rounding."""

    def begun(folder: str, start: float) -> Trace:
        return two_optimizers(tmp_path / folder, ("conv.weight", "conv.weight"), (1.0, start), 2.0)

    assert compare(begun("dp", 2.0), [begun("a", 2.1)], FLOAT64).same


def test_rounding_is_known_of_weights_that_another_optimizer_has_stepped(tmp_path: Path) -> None:
    """The first makes a full step of a rounding zero; to the second that element's gradients are the same by luck.

    Of another model's weights of that name nothing is known: they begin with other bits.
    """

    def trained(folder: str, zero: float, start: float, last: float) -> Trace:
        writer = Writer(tmp_path / folder / "rank0")
        for optimizer, (begun, gradient) in enumerate([(1.0, zero), (start, 3e-16)]):
            before, now, after = (
                named({"conv.bias": np.array(each)})
                for each in ([begun] * 3, [1.0, 1.0, gradient], [2.0, 2.0, last])
            )
            layout = writer.write_layout(before.layout)
            writer.write_initial(optimizer, {"parameters": before, "buffers": named({})})
            line = StepLine(step=optimizer, optimizer=optimizer, layout=layout, learning_rates=(0.1,))
            writer.write_step(line, {"gradients": now, "parameters": after})
        writer.write_end(End(steps=2), {})
        return read_trace(tmp_path / folder, 0)

    own = trained("own", -5e-16, 2.0, 2.0 + 1e-7)
    assert compare(trained("dp", 3e-16, 2.0, 2.0), [own], FLOAT64).same
    found = compare(trained("others", 3e-16, 1.5, 2.0), [own], FLOAT64).first
    assert (found.kind, found.step) == ("parameter", 1)


def test_a_difference_in_the_optimizers_state_is_one_before_it_reaches_parameters(tmp_path: Path) -> None:
    def taken(momentum: float) -> Taken:
        return Taken(GRADIENT, state={"momentum_buffer of conv.bias": np.array([1.0, momentum])})

    assert both(tmp_path / "a", [taken(0.5)], [taken(0.5 + 1e-15)]).same
    found = both(tmp_path / "b", [taken(0.5)], [taken(0.6)])
    assert (found.first.kind, found.first.name) == ("optimizer state", "momentum_buffer of conv.bias")


def test_momentum_of_nothing_but_rounding_is_measured_by_its_sort(tmp_path: Path) -> None:
    def taken(noise: float) -> Taken:
        return Taken(GRADIENT, state={"exp_avg of a": np.ones(2), "exp_avg of b": np.array([noise])})

    assert both(tmp_path, [taken(3e-16)], [taken(-5e-16)]).same


def test_buffers_are_compared_at_each_step(tmp_path: Path) -> None:
    expected, actual = (
        [Taken(GRADIENT, buffers={"mean": np.array([1.0, value])})] * 2 for value in (2.0, 2.5)
    )
    found = both(tmp_path, expected, actual)
    assert (found.first.kind, found.first.step) == ("buffer", 0)


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        pytest.param(
            {"precision": ("bfloat16",)}, "precision", "bfloat16 instead of float16", id="precision"
        ),
        pytest.param({"precision": ("float16",), "skipped": 1}, "decision", "1 steps skipped", id="skipped"),
    ],
)
def test_facts_that_double_precision_hides(
    tmp_path: Path, events: dict[str, object], kind: str, words: str
) -> None:
    found = both(
        tmp_path, [Taken(GRADIENT, events={"precision": ("float16",)})], [Taken(GRADIENT, events=events)]
    )
    assert found.first.kind == kind
    assert words in found.first.name


@pytest.mark.parametrize(
    ("streams", "indices", "same"),
    [
        pytest.param(((7,), (7,)), ((0, 1), (2, 3)), False, id="repeated"),
        pytest.param(((7, 5), (8, 5)), ((0, 1), (2, 3)), False, id="repeated in one library of two"),
        pytest.param(((7,), (8,)), ((0, 1), (2, 3)), True, id="streams of their own"),
        pytest.param(((7,), (7,)), ((0, 1), (0, 1)), True, id="all load everything"),
        pytest.param(((), ()), ((0, 1), (2, 3)), True, id="nothing is drawn"),
    ],
)
def test_random_numbers_repeated_on_another_rank_are_a_fault(
    tmp_path: Path,
    streams: tuple[tuple[int, ...], tuple[int, ...]],
    indices: tuple[tuple[int, ...], tuple[int, ...]],
    same: bool,
) -> None:
    ranks = [
        record(
            tmp_path / "ddp",
            [Taken(GRADIENT, events={"draws": (Draw(0, indices[rank], streams[rank]),)})],
            rank=rank,
        )
        for rank in (0, 1)
    ]
    found = compare(record(tmp_path / "dp", [Taken(GRADIENT)]), ranks, FLOAT64, port=True)
    assert found.same is same
    assert found.first is None or found.first.kind == "random streams"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        pytest.param((range(8), range(8)), True, id="whole"),
        pytest.param((range(4), range(4, 8)), False, id="shares"),
        pytest.param((range(8), range(8, 16)), False, id="each as large, of other rows"),
    ],
)
def test_a_port_that_shares_nothing_out_is_told_so(
    tmp_path: Path, rows: tuple[range, range], told: bool
) -> None:
    expected = record(
        tmp_path / "dp", [Taken(GRADIENT, events={"forwards": (Forward(True, (4, 4), tuple(range(8))),)})]
    )
    events = [{"forwards": (Forward(True, (len(own),), tuple(own)),)} for own in rows]
    ranks = [record(tmp_path / "ddp", [Taken(GRADIENT, events=events[rank])], rank=rank) for rank in (0, 1)]
    found = compare(expected, ranks, FLOAT64, port=True)
    assert found.same
    assert found.rank_rows == (((8, 8),) if sum(map(len, rows)) == 16 else ())
    assert any("each rank trains on the whole batch (8 rows)" in remark for remark in found.remarks) is told


def test_several_whole_batches_in_a_step_repeat_nothing(tmp_path: Path) -> None:
    """A validation with random numbers: samples draw from streams of their own, so the script's stays where it is."""
    draws = {"draws": (Draw(0, (0, 1), (7,)), Draw(1, (4, 5), (7,)), Draw(1, (6, 7), (7,)))}
    ranks = [record(tmp_path / "ddp", [Taken(GRADIENT, events=draws)], rank=rank) for rank in (0, 1)]
    assert compare(record(tmp_path / "dp", [Taken(GRADIENT)]), ranks, FLOAT64, port=True).same


def test_how_often_autocast_is_entered_is_a_matter_of_taste(tmp_path: Path) -> None:
    expected = Taken(GRADIENT, events={"precision": ("float16", "float16")})
    assert both(tmp_path, [expected], [Taken(GRADIENT, events={"precision": ("float16",)})]).same


def test_the_losses_of_a_ports_ranks_are_evidence_only(tmp_path: Path) -> None:
    expected, actual = (Taken(GRADIENT, events={"losses": (loss,)}) for loss in (1.0, 1.5))
    assert both(tmp_path / "a", [expected], [actual]).same
    assert not both(tmp_path / "b", [expected], [actual], port=False).same
    worse = Taken(GRADIENT * 2, events={"losses": (1.5,)})
    found = both(tmp_path / "c", [expected], [worse])
    assert found.first.kind == "gradient"
    assert [each.kind for each in found.also] == ["loss", "parameter"]


def test_other_groups_with_the_same_rates_are_the_same_for_a_port(tmp_path: Path) -> None:
    one, two = Taken(GRADIENT), Taken(GRADIENT, rates=(0.1, 0.1))
    assert both(tmp_path / "a", [one], [two]).same
    assert not both(tmp_path / "b", [one], [Taken(GRADIENT, rates=(0.1, 0.2))]).same


def test_states_of_an_optimizer_have_the_names_of_their_parameters_without_wrappers() -> None:
    assert plain_name("momentum_buffer of module.body.module.0.weight") == "momentum_buffer of body.0.weight"
    assert plain_name("module.weight") == "weight"
