"""GraphDDP and ExactDDP against DataParallel's numbers, on 2, 3 and 4 ranks over gloo (one run for all tests)."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from scenarios import GRAPH_ONLY, IMPURE, NOT_LEAN, NOT_PLAIN, SCENARIOS  # noqa: E402

pytestmark = pytest.mark.torchrun

# Where gradients of several passes add up before they are summed over the ranks, the order of the additions is
# another than DataParallel's: equal to rounding, and not to the last bit.
OTHER_ORDER = {
    "accumulation",
    "forward_and_module_method",
    "gan_with_batch_norm",
    "inputs_that_want_gradients",
    "reentrant_checkpoints",
    "several_forwards_one_backward",
}
# four ranks train with `--all`; what a few of them do besides is checked always
TRAINED_ON = [2, 3, pytest.param(4, marks=pytest.mark.slow)]
CASES = [f"{name} GraphDDP" for name in SCENARIOS] + [
    f"{name} ExactDDP" for name in SCENARIOS if name not in GRAPH_ONLY
]
SMALLER = [f"{name} WholeBatchDDP" for name in SCENARIOS if name not in NOT_PLAIN] + [
    f"{name} WholeBatchParallel" for name in SCENARIOS if name not in NOT_LEAN
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, wants_all: bool) -> Any:
    """found(world, key): what every rank found, in rank order."""
    folder = tmp_path_factory.mktemp("ranks")
    worlds = "--whole 2 3 4" if wants_all else "--whole 2 3 --checked 4"
    command = [sys.executable, str(HERE / "rank_program.py"), str(folder), *worlds.split()]
    run = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return functools.partial(look_up, folder)


@functools.cache
def read(path: Path) -> Any:
    return json.loads(path.read_text())


def look_up(folder: Path, world: int, key: str) -> list[Any]:
    answers = [read(folder / f"{world}_{rank}.json")[key] for rank in range(world)]
    failed = [answer["failed"] for answer in answers if isinstance(answer, dict) and "failed" in answer]
    assert not failed, failed[0]
    return answers


def judged(answers: list[Any], case: str) -> list[Any]:
    """All ranks', but where buffers of ranks > 0 are brought up to date by the next forward, as DDP does it."""
    return answers[:1] if case.endswith(" WholeBatchDDP") else answers


@pytest.mark.parametrize("world", TRAINED_ON)
@pytest.mark.parametrize("case", CASES + SMALLER)
def test_every_number_is_dataparallels(found: Any, case: str, world: int) -> None:
    for answer in judged(found(world, f"{case} float64"), case):
        assert answer["compared"] > 0
        assert answer["difference"] <= 1e-12


@pytest.mark.parametrize("world", TRAINED_ON)
@pytest.mark.parametrize("case", [case for case in CASES if case.split()[0] not in IMPURE])
def test_modules_whose_forward_leaves_no_traces_run_themselves(found: Any, case: str, world: int) -> None:
    for answer in found(world, f"{case} pure"):
        assert answer["compared"] > 0
        assert answer["difference"] <= 1e-12


@pytest.mark.parametrize("world", TRAINED_ON)
@pytest.mark.parametrize("name", SCENARIOS)
def test_sums_that_set_out_while_backward_runs_are_the_same(found: Any, name: str, world: int) -> None:
    for answer in found(world, f"{name} soon"):
        assert answer["compared"] > 0
        assert answer["difference"] <= 1e-12


@pytest.mark.parametrize("case", CASES + SMALLER)
def test_two_ranks_agree_with_dataparallel_to_the_last_bit_in_float32(found: Any, case: str) -> None:
    name, kind = case.split()
    for answer in judged(found(2, f"{case} float32"), case):
        if kind in ("GraphDDP", "WholeBatchParallel") or name not in OTHER_ORDER:
            assert answer["other_bits"] == 0
        assert answer["difference"] <= 2e-5


@pytest.mark.parametrize("world", [2, 3, 4])
def test_without_the_factor_gradients_are_smaller_by_the_number_of_ranks(found: Any, world: int) -> None:
    for ratios in found(world, "without_the_factor"):
        assert ratios
        assert set(ratios) == {round(1 / world, 5)}


def test_what_replicas_print_is_printed_by_rank_0_in_rank_order(found: Any) -> None:
    assert found(4, "prints_in_forward")[0] == "inside: 2 rows\ninside: 2 rows\ninside: 1 rows\n"


def test_attributes_set_in_forward_are_lost_as_with_replicas(found: Any) -> None:
    assert found(2, "attributes_set_in_forward") == [0, 0]


@pytest.mark.parametrize("world", [2, 4])
def test_an_exception_in_one_replica_is_raised_on_every_rank_and_the_run_goes_on(
    found: Any, world: int
) -> None:
    where = f"Caught FloatingPointError in replica {world - 1} on device cpu."
    gradient = 100.0 * (2 * world - 1)  # 5 outputs, 20 inputs of 1, all rows but the last
    for said in found(world, "an_exception_on_the_last_rank"):
        assert said == [where, "FloatingPointError: too large", gradient] * 2


def test_it_looks_like_ddp_and_is_saved_like_dataparallel(found: Any) -> None:
    for facts in found(2, "names_and_faces"):
        assert facts == [True, True, True, "module.body.0.weight", True] * 2


def test_layers_initialised_by_their_first_rows_are_those_of_replica_0(found: Any) -> None:
    assert found(4, "initialised_by_the_data")[0] == [[True, True]] * 4


def test_outputs_that_dataparallel_cannot_gather_are_refused_alike(found: Any) -> None:
    said = ["'float' object is not iterable", "'int' object is not iterable", "str"]
    assert found(3, "outputs_that_cannot_be_gathered") == [said] * 3


def test_a_module_that_draws_on_the_host_does_so_in_turn_or_not_at_all(found: Any) -> None:
    assert found(4, "draws_on_the_host") == [[True, True, True]] * 4


@pytest.mark.parametrize("world", [2, 3, 4])
def test_parts_called_by_hand_are_those_of_the_wrapper(found: Any, world: int) -> None:
    answers = found(world, "parts_by_hand")
    assert [answer[:2] for answer in answers] == [[True, True]] * world
    assert all(answer is None or answer[2] for answer in answers)


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize(
    "which", ["outputs_lie_in_memory_as_gathered_ones", "outputs_by_hand_are_the_replicas_own"]
)
def test_outputs_have_the_strides_flags_and_values_of_dataparallels(
    found: Any, which: str, world: int
) -> None:
    assert found(world, which) == [[]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_is_kept_and_rows_of_another_dimension_go_together(found: Any, world: int) -> None:
    assert found(world, "kept_along_another_dimension") == [[True, True]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_a_forward_keeps_is_what_replicas_would_leave(found: Any, world: int) -> None:
    assert found(world, "what_a_forward_keeps") == [[True] * 7] * world


def test_rank_0_alone_waits_for_nobody(found: Any) -> None:
    assert found(3, "rank_zero_alone") == [[1, 3]] * 3


def test_files_are_written_once_and_complete_when_read(found: Any) -> None:
    line = "line of rank 0\n"
    files = ["log.csv", "made", "model.pt", "notes.txt"]
    facts = [0, "FileExistsError", {"rank": 0}, line, line, 1, 2, files]
    assert found(4, "things_done_once")[0] == [facts] * 4


@pytest.mark.parametrize("world", [2, 3, 4])
def test_temporary_files_are_one_for_all_ranks(found: Any, world: int) -> None:
    (facts,) = {json.dumps(each) for each in found(world, "temporary_files")[0]}
    saved, names, there, name, read, on_disk, still, kept, path, text, buffered, shared = json.loads(facts)
    assert (saved, names, there) == ({"rank": 0}, ["best.pt"], False)
    assert (read, on_disk, still, kept, text) == ("line", "line", False, True, "rank 0")
    assert buffered
    assert shared == 1


def test_a_writer_is_silent_on_other_ranks_and_knows_its_folder(found: Any) -> None:
    assert found(2, "objects_of_rank_zero")[0] == [["runs", 2], ["runs", 2]]


def test_messages_of_any_length_arrive(found: Any) -> None:
    lengths = [[0] * 3, [10] * 3, [2000] * 3, [5000, 10000, 15000]]
    assert found(3, "messages_of_any_length") == [lengths] * 3


def test_what_cannot_be_pickled_is_refused_on_every_rank(found: Any) -> None:
    assert found(2, "what_cannot_be_sent") == [True, True]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_rank_0_reads_comes_to_every_rank(found: Any, world: int) -> None:
    for different, strides, name, same_object in found(world, "fed_items"):
        assert (different, strides, name, same_object) == (1, [1, 2], "0 of rank 0", True)


def test_errors_and_the_end_of_the_data_come_to_every_rank(found: Any) -> None:
    said = ["Empty", True, {"rank": 0}, "end", "line 2: rank 0"]
    assert found(3, "fed_errors") == [said] * 3


def test_a_thread_of_rank_0_fills_the_queue_that_all_ranks_read(found: Any) -> None:
    assert found(4, "filled_by_a_thread") == [[[float(i)] * 2 for i in range(5)]] * 4


def test_an_object_with_a_state_has_it_on_rank_0(found: Any) -> None:
    rows = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    assert found(3, "methods_stay_on_rank_zero") == [[3, rows, True, rows[2]]] * 3


@pytest.mark.parametrize("world", [2, 3])
def test_of_large_items_each_rank_has_its_rows(found: Any, world: int) -> None:
    assert found(world, "fed_large_batches") == [[[True] * 9, "RowsOnRanks", "Tensor"]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_step_exchanges_one_message_beside_gradients(found: Any, world: int) -> None:
    for facts in found(world, "what_a_step_exchanges"):
        assert facts.pop("graph") == ["all_gather", "all_reduce"]  # the reports, and the sums
        for kind, (more_than_forwards, largest) in facts.items():
            assert more_than_forwards == 0, kind
            assert largest <= 1024, kind


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_gan_exchanges_its_forwards_and_the_gradient_between_its_models(found: Any, world: int) -> None:
    assert found(world, "a_gan_step") == [["all_gather"] * 5] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_backward_sums_the_gradients_of_all_models_at_once(found: Any, world: int) -> None:
    critic, both, none = (
        ["all_reduce"],
        ["all_gather", "all_reduce"],
        ["all_gather"],
    )  # of the inputs' gradient
    assert found(world, "sums_of_a_gan") == [[critic, critic, both, none]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_large_sums_go_alone_once_the_ranks_have_agreed(found: Any, world: int) -> None:
    first, rest = 600 * 500, 500 + 500 * 560 + 560 + 560 * 2 + 2
    together, apart = [rest + first], [rest, first]
    assert found(world, "large_sums_set_out_alone") == [[together, apart, together]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_backward_that_raises_leaves_nothing_behind(found: Any, world: int) -> None:
    assert found(world, "a_backward_that_raised") == [["not this time", True, True, 0]] * world


def test_a_hook_that_comes_between_forward_and_backward_is_refused(found: Any) -> None:
    assert found(2, "a_hook_behind_the_forward") == ["A hook came to a parameter betwe"] * 2


@pytest.mark.parametrize("world", [2, 3, 4])
def test_buffers_come_to_whoever_looks_at_them(found: Any, world: int) -> None:
    for facts in found(world, "buffers_come_to_whoever_looks"):
        assert facts
        for way, (was_far, broadcasts, same, alike, again, is_far) in facts.items():
            assert (was_far, broadcasts, same, alike, again, is_far) == (True, 1, True, True, [], False), way


@pytest.mark.parametrize("world", [2, 3, 4])
def test_buffers_are_replica_zeros_and_whoever_holds_them_sees_them_change(found: Any, world: int) -> None:
    assert found(world, "running_averages_are_replica_zeros") == [True] * world
    assert found(world, "whoever_holds_a_buffer_sees_it_change") == [[True] * 8] * world
    assert found(world, "rank_zero_alone_looks_without_waiting") == [[[], True]] * world
    assert found(world, "a_forward_that_reads_averages_has_rank_zeros") == [True] * world
    assert found(world, "layers_that_run_again_change_rank_zeros_buffers") == [[True, True, 6]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_missing_gradients_are_zeros_as_dataparallels(found: Any, world: int) -> None:
    assert found(world, "missing_gradients_are_zeros") == [[True, True]] * world
    assert found(world, "unused_layers_wait_for_nobody") == [[True] * 4] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_what_a_forward_does_to_parameters_decides_how_it_runs(found: Any, world: int) -> None:
    assert found(world, "parameters_given_other_data_are_kept") == [[True, True]] * world
    assert found(world, "rows_are_scaled_but_in_float16") == [[True, True, False, False]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize(
    "check",
    [
        *("batches_are_the_whole_loaders", "batches_of_anything", "steps_are_those_of_whole_batches"),
        *("large_ones_do_not_travel", "changes_in_place", "batches_that_no_model_sees"),
        *("what_replicas_can_reach_stays_each_ranks_own", "rows_that_a_forward_finds_in_an_object"),
        "masks_are_counted_where_they_are",
    ],
)
def test_batches_of_which_ranks_load_their_rows_are_whole_to_the_script(
    found: Any, world: int, check: str
) -> None:
    for facts in found(world, check):
        assert set(facts) == {True}


@pytest.mark.parametrize("world", [2, 3, 4])
def test_labels_travel_with_the_outputs(found: Any, world: int) -> None:
    """One collective a step, and none for batches that no model sees."""
    assert found(world, "labels_travel_with_the_forward") == [[[1, 1, 1], True, 0]] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_thread_and_rank_0_alone_have_the_whole_loader(found: Any, world: int) -> None:
    whole = [[True, 5], [True, 2]]
    refused = ["These rows lie on", "A thread asks for"]
    wanted = [whole, whole, [True, [0, 1, 2, 0, 1], *refused, [0, 1, 2, 0, 1]]]
    assert found(world, "where_not_all_ranks_come_by") == [wanted] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_samples_that_make_no_batch_are_refused_on_every_rank(found: Any, world: int) -> None:
    assert found(world, "samples_of_different_shapes") == [[True, 2]] * world
    assert found(world, "mistaken_collate") == [True] * world


@pytest.mark.parametrize("world", [2, 3])
def test_a_forward_without_arguments_runs_once(found: Any, world: int) -> None:
    for kinds in found(world, "smaller_wrappers_without_arguments"):
        assert kinds == [[[3, 2], [2.0]], [[3, 2], [2.0]]]


@pytest.mark.parametrize("world", [2, 3])
def test_a_file_that_nobody_closes_is_written_out_at_once(found: Any, world: int) -> None:
    assert found(world, "files_that_nobody_closes") == ["0\n1\n2\n"] * world


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_lean_wrapper_leaves_parameters_where_they_were(found: Any, world: int) -> None:
    assert found(world, "lean_wrapper_leaves_parameters_where_they_were") == [[True, True, True]] * world


@pytest.mark.parametrize("world", [2, 3])
def test_errors_of_what_rank_0_does_alone_are_all_ranks(found: Any, world: int) -> None:
    for ranks in found(world, "errors_of_run_on_rank0"):
        assert ranks == [[rank, "out"] for rank in range(world)]
