"""What is verified, and what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.options import VerifyOptions
from dp2ddp.trial.subject import subject_of
from tests.cli.scripts import script, variables

TRAIN = """
import torch
import torch.nn as nn

model = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 4).cuda()).mean().backward()
    optimizer.step()
"""


@pytest.mark.usefixtures("own_folder")
def test_a_converted_script_that_was_changed_is_not_what_is_verified(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    assert subject_of(VerifyOptions(script=Path("train.py"))).remarks == ()
    subprocess.run(
        [sys.executable, "-m", "dp2ddp", "convert", "train.py"],
        check=True,
        env=variables(),
        capture_output=True,
    )
    assert subject_of(VerifyOptions(script=Path("train.py"))).remarks == ()

    port = tmp_path / "train_ddp.py"
    port.write_text(port.read_text().replace("    optimizer.step()", "    pass"))

    (remark,) = subject_of(VerifyOptions(script=Path("train.py"))).remarks
    assert remark.startswith("train_ddp.py as it lies there is NOT what was verified")
    assert remark.endswith("dp2ddp verify train.py --converted train_ddp.py")
    assert subject_of(VerifyOptions(script=Path("train.py"), converted=Path("train_ddp.py"))).remarks == ()
