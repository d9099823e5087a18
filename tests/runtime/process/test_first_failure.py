"""Which rank is told as the one that failed first, and what is no hang."""

import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from dp2ddp.runtime.process.run import first_to_fail, watch
from dp2ddp.runtime.run_folder import RankStatus, prepare_run_folder, write_status
from dp2ddp.runtime.stage import Stage


@dataclass
class Unending:
    """A run of two ranks that does not end by itself: nobody ends the rank that waits for the other."""

    stage: Stage
    started: float = field(default_factory=time.monotonic)
    is_killed: bool = False

    def codes(self) -> None:
        return None

    def kill(self) -> None:
        self.is_killed = True


def test_a_rank_that_waits_for_one_which_has_failed_is_no_hang(tmp_path: Path) -> None:
    """At the timeout, where no launcher has ended it before; without a failed rank it is one."""
    stage = Stage("train.py", "ddp", 2, str(tmp_path), str(tmp_path / "run"), "train.py")
    run_folder = Path(stage.run_folder)
    kinds = []
    for error in ("KeyError: 'model'", ""):
        prepare_run_folder(stage)
        (run_folder / "heartbeats").write_bytes(bytes([1, *[0] * 15] * 2))  # both have begun
        write_status(run_folder, 0, RankStatus(2**22 + 1))  # gone: nobody answers for it
        code = 1 if error else None
        write_status(run_folder, 1, RankStatus(2**22 + 2, code, time.monotonic(), error))
        running = Unending(stage)
        (run,) = watch([running], timeout=0.2)
        assert running.is_killed
        kinds.append((run.failure.kind, run.failure.rank))
    assert kinds == [("crash", 1), ("hang", None)]


def test_a_rank_that_torchrun_ended_is_not_the_first() -> None:
    """It has no last words, and no time at which it ended."""
    raised = RankStatus(10, code=1, ended=7.5, error="KeyError: 'model'")
    assert first_to_fail((1, -signal.SIGTERM), {0: raised, 1: RankStatus(11)}) == 0
    assert first_to_fail((-signal.SIGTERM, 1), {0: RankStatus(10), 1: raised}) == 1


def test_a_rank_that_was_killed_is_the_first() -> None:
    late = RankStatus(10, code=1, ended=7.5, error="RuntimeError: Connection closed by peer")
    assert first_to_fail((1, -signal.SIGKILL), {0: late, 1: RankStatus(11)}) == 1
    assert first_to_fail((0, 0), {}) is None
