"""What is verified, and what is not."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.options import VerifyOptions
from dp2ddp.trial.subject import subject_of
from tests.cli.scripts import TRAIN, script


def test_a_converted_script_that_was_changed_is_not_what_is_verified(own_folder: Path) -> None:
    script(own_folder, TRAIN)
    assert subject_of(VerifyOptions(script=Path("train.py"))).remarks == ()
    assert CliRunner().invoke(main, ["convert", "train.py"]).exit_code == 0
    assert subject_of(VerifyOptions(script=Path("train.py"))).remarks == ()

    port = own_folder / "train_ddp.py"
    port.write_text(port.read_text().replace("optimizer.step()", "pass"))

    (remark,) = subject_of(VerifyOptions(script=Path("train.py"))).remarks
    assert remark.startswith("train_ddp.py as it lies there is NOT what was verified")
    assert remark.endswith("dp2ddp verify train.py --converted train_ddp.py")
    assert subject_of(VerifyOptions(script=Path("train.py"), converted=Path("train_ddp.py"))).remarks == ()
