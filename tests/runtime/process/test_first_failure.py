"""Which rank is told as the one that failed first."""

import signal

from dp2ddp.runtime.process.run import first_to_fail
from dp2ddp.runtime.run_folder import RankStatus


def test_a_rank_that_torchrun_ended_is_not_the_first() -> None:
    """It has no last words, and no time at which it ended."""
    raised = RankStatus(10, code=1, ended=7.5, error="KeyError: 'model'")
    assert first_to_fail((1, -signal.SIGTERM), {0: raised, 1: RankStatus(11)}) == 0
    assert first_to_fail((-signal.SIGTERM, 1), {0: RankStatus(10), 1: raised}) == 1


def test_a_rank_that_was_killed_is_the_first() -> None:
    late = RankStatus(10, code=1, ended=7.5, error="RuntimeError: Connection closed by peer")
    assert first_to_fail((1, -signal.SIGKILL), {0: late, 1: RankStatus(11)}) == 1
    assert first_to_fail((0, 0), {}) is None
