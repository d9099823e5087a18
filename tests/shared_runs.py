"""Which tests stay together in one process, since they share what takes long: a run of ranks, a verified example.

pytest-xdist has a marker for it, but under pytest 9.2 its 3.8 forgets the marks without a word, and every run is made
twice.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

SHARED_BY_FILE = {
    "tests/cli/test_bad_input.py",
    "tests/cli/test_bench.py",
    "tests/cli/test_notebook_in_kernel.py",
    "tests/cli/test_run.py",
    "tests/cli/test_verify.py",
    "tests/codemod/test_held.py",
    "tests/hidden/test_trainer_page.py",
    "tests/costs/test_clock.py",
    "tests/costs/test_counter.py",
    "tests/hangs/test_hangs.py",
    "tests/new/test_new.py",
    "tests/report/test_html_in_browser.py",
    "tests/review/test_converted.py",
    "tests/runtime/process/test_forked.py",
    "tests/runtime/observe/test_forward_rows.py",
    "tests/runtime/process/test_guard.py",
    "tests/runtime/perturb/test_rank_order.py",
    "tests/templates/test_functions.py",
    "tests/templates/test_loader.py",
    "tests/templates/test_model.py",
    "tests/templates/test_nested.py",
    "tests/templates/test_parts.py",
    "tests/templates/test_rank0.py",
    "tests/templates/test_turns.py",
    "tests/test_checkpoints.py",
    "tests/test_endings.py",
    "tests/test_packaging.py",
    "tests/test_scale.py",
    "tests/test_site.py",
    "tests/trackers/test_trackers.py",
    "tests/trace/test_observers.py",
    "tests/trial/test_aligned.py",
    "tests/trial/test_lockstep.py",
    "tests/trial/test_sinks_run.py",
}
SHARED_BY_PARAMETER = {"tests/mutations/test_mutations.py", "tests/test_examples.py"}


class SharedRuns(LoadScopeScheduling):
    """Gives all tests of a group to one process, and any other test to the next that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Those of the groups given out last; xdist's own counts all that one process has done, behind each test."""
        pending = 0
        for group in reversed(workload.values()):
            if all(group.values()):
                break
            pending += [*group.values()].count(False)
        return pending


def group_of(nodeid: str) -> str:
    """The file, the parameter (`cifar_bn` of `...::test_it[cifar_bn]`), or the test alone."""
    file = nodeid.partition("::")[0]
    if file in SHARED_BY_FILE:
        return file
    parameter = re.search(r"\[(.*)\]$", nodeid)
    return f"{file}[{parameter[1]}]" if file in SHARED_BY_PARAMETER and parameter else nodeid
