"""Large outputs, which each rank holds in part, in all that scripts do with them: the whole, or a refusal at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dp2ddp.templates import half

from dp2ddp.codemod.helpers import module_text
from dp2ddp.codemod.lift import all_templates

pytestmark = pytest.mark.torchrun
HERE = Path(__file__).parent
WORLDS = (pytest.param(2, marks=pytest.mark.slow), 3)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, worlds: list[int]) -> dict[int, list[Any]]:
    """What every rank found, in rank order, by the number of ranks."""
    folder = tmp_path_factory.mktemp("faults")
    run = subprocess.run(
        [sys.executable, str(HERE / "faults_program.py"), str(folder), ",".join(map(str, worlds))],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return {
        world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
        for world in worlds
    }


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", ["copies", "an_epoch"])
def test_pickled_copied_iterated_indexed_kept_and_put_together_it_is_the_whole(
    found: Any, world: int, check: str
) -> None:
    assert [each[check] for each in found[world]] == [[]] * world


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("check", "count"), [("files", 3), ("counted", 8)])
def test_what_is_written_and_counted_by_hand_is_of_the_whole(
    found: Any, world: int, check: str, count: int
) -> None:
    assert [each[check] for each in found[world]] == [[True] * count] * world


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", ["log_file", "logs_set_up_at_once", "tracker"])
def test_logs_and_trackers_of_rank_0_are_told_the_whole(found: Any, world: int, check: str) -> None:
    assert [each[check] for each in found[world]] == [True] * world


@pytest.mark.parametrize("world", WORLDS)
def test_where_one_rank_alone_asks_for_all_rows_it_is_refused_at_once(found: Any, world: int) -> None:
    for rank, each in enumerate(found[world]):
        assert all("only one rank asks for all of them" in one for one in each["one_rank_alone"])
        refused = each["what_only_rank_0_has"]
        assert len(refused) == (3 if rank else 0)
        assert all("an object that rank 0 alone has" in one for one in refused)


@pytest.mark.parametrize("world", WORLDS)
def test_a_thread_that_the_script_starts_is_refused_rows_of_other_ranks(found: Any, world: int) -> None:
    assert all("A thread asks for rows" in each["in_a_thread"] for each in found[world])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled_functions_get_the_whole_with_its_gradients(found: Any, world: int, backend: str) -> None:
    for each in found[world]:
        assert each[f"compiled_{backend}"] == {"right": [True] * 3, "graphs of helpers": []}


@pytest.mark.parametrize("world", WORLDS)
def test_float16_from_a_later_step_on_overflows_no_sooner_than_dataparallels(found: Any, world: int) -> None:
    assert [each["float16_from_a_later_step"] for each in found[world]] == [[[True] * 3] * 2] * world


def test_the_helpers_themselves_speak_of_autocast_in_other_words() -> None:
    """Or no project would be taken as one without it."""
    helpers = module_text(all_templates().names, all_templates())
    assert "class HalfPrecision" in helpers
    assert not half.AUTOCASTS.search(helpers)
    assert half.AUTOCASTS.search("with torch.cuda.amp.autocast(enabled=amp):")
    assert half.AUTOCASTS.search("from torch.cuda.amp import GradScaler, autocast as ac")


def test_a_process_that_imports_torch_and_no_more_speaks_of_no_autocast() -> None:
    """torch.ops names a file that is none: taken for one that cannot be read, it made each script one with autocast."""
    asks = "import torch; from dp2ddp.templates.half import autocasts_somewhere; print(autocasts_somewhere())"
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
