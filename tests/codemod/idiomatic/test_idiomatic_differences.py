"""What the report lists, and that it lists nothing where nothing differs (test_idiomatic_runs.py runs it)."""

from __future__ import annotations

import pytest

from tests.codemod.idiomatic.scripts import idiomatic, names_of, script
from tests.codemod.scripts import converted

ALWAYS = {"batch size": False, "last batch": False}  # of a loader that is shared out


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {}),
        ({"shuffle": True}, {"order of samples": True}),
        ({"layer": " nn.BatchNorm1d(16),"}, {"batch norm": True}),
        ({"layer": " nn.Dropout(),"}, {"dropout": True}),
        ({"criterion": "nn.CrossEntropyLoss(ignore_index=2)"}, {"loss": True}),
        ({"criterion": "nn.CrossEntropyLoss(weight=torch.ones(3).cuda())"}, {"loss": True}),
        ({"criterion": "nn.CrossEntropyLoss(reduction='sum')"}, {"loss": True}),
        ({"within": "x = x + torch.randn_like(x)"}, {"random numbers of the loop": True}),
        ({"log": "print(loss.item())"}, {"training figures": True}),
        ({"log": "print(len(loader), x.size(0), epoch)"}, {}),
        ({"before": "rows = np.random.permutation(9)"}, {"no seed": False}),
    ],
)
def test_a_report_lists_what_differs_and_no_more(changes: dict[str, object], names: dict[str, bool]) -> None:
    assert names_of(idiomatic(f"import numpy as np\n{script(**changes)}")) == ALWAYS | names


def test_what_stays_is_told() -> None:
    kept = " ".join(
        idiomatic(script() + "test = DataLoader(inputs, batch_size=4)\nfor x in test: print(net(x))\n").kept
    )

    assert "the samples of a step" in kept
    assert "evaluation: every rank" in kept


def test_the_exact_style_lists_nothing() -> None:
    conversion = converted(script())

    assert conversion.differences == ()
    assert conversion.kept == ()
