"""Scripts of the corpus, converted to the idiomatic style and run on two ranks: none hangs, ranks keep one model."""

from __future__ import annotations

import pytest
from corpus.cases import Case
from covering import covering, slow_but_for

from dp2ddp.runtime.process.server import Server
from tests.codemod.idiomatic.running import outcome, scripts

SCRIPTS = scripts()
# What does not run to its end with one model on all ranks, and why.
OTHERWISE = {
    "data/vqa_dict_batches": "crash",  # a rank adds what it got wrong to its own data set: other numbers of batches
    "loss/wgan_gp": "crash",  # a penalty that leaves a bias out, in a backward pass of its own
    "models/inputs_and_outputs": "crash",  # reads what DataParallel gathers as a vector
    "models/synced_bn_patched": "crash",  # patches `replicate` of the wrapper, which DDP does not have
    "loss/checkpointing_both": "apart",  # a forward writes a frozen weight, which DDP leaves to each rank
    "effects/bare_except_goes_on": "apart",  # one rank swallows an error in its step: a comment says so
    "effects/init_distributed_mode": "refused",  # torchrun starts its own distributed mode
    "effects/names_from_the_clock": "crash",  # a folder named by each rank's own number
    "effects/questions_behind_flags": "crash",  # asks a person, whom no rank has
    "effects/skip_small_batches": "crash",  # counts its batches by the batch size
    "effects/whole_model_pickled": "crash",  # pickles the wrapper
}


def kind(case: Case) -> set[object]:
    """Its folder, and how it ends; to convert them all takes longer than to run a few."""
    return {case.name.partition("/")[0], OTHERWISE.get(case.name, "runs")}


COVERING = covering(SCRIPTS, kind)


def test_six_of_seven_are_expected_to_run() -> None:
    names = {case.name for case in SCRIPTS}
    end_early = {name for name, word in OTHERWISE.items() if word != "apart"}
    assert names >= OTHERWISE.keys()
    assert 7 * len(names - end_early) >= 6 * len(names)


@pytest.mark.torchrun
@pytest.mark.parametrize("case", slow_but_for(COVERING, SCRIPTS, lambda case: case.name))
def test_a_script_runs_and_its_ranks_keep_one_model(case: Case, server: Server) -> None:
    found = outcome(case, server)

    assert found.word == OTHERWISE.get(case.name, "runs"), found.text
