"""What the report lists, and that it lists nothing where nothing differs (test_idiomatic_runs.py runs it)."""

from __future__ import annotations

import pytest

from tests.codemod.idiomatic.scripts import idiomatic, names_of, script
from tests.codemod.scripts import converted


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {}),
        ({"shuffle": True}, {"order of samples": True}),
        ({"samples": 63}, {"last batch": True}),
        ({"batch": 15}, {"batch size": True}),
        ({"layer": " nn.BatchNorm1d(16),"}, {"batch norm": True}),
        ({"layer": " nn.Dropout(),"}, {"dropout": True}),
        ({"layer": " nn.Dropout(),", "shuffle": True}, {"order of samples": True}),
        ({"criterion": "nn.CrossEntropyLoss(ignore_index=2)"}, {"loss": True}),
        ({"criterion": "nn.CrossEntropyLoss(torch.ones(3).cuda())"}, {"loss": True}),
        ({"within": "x = x + torch.randn_like(x)"}, {"random numbers of the loop": True}),
        ({"log": "print(loss.item())"}, {"training figures": True}),
        ({"log": "print(len(loader), x.size(0), epoch)"}, {}),
        ({"batch": "args.bs"}, {"batch size": False}),
        ({"samples": "len(rows)"}, {"last batch": False}),
        ({"before": "import torchvision; net2 = torchvision.models.vgg11()"}, {"batch norm": False, "dropout": False}),
    ],
)  # fmt: skip
def test_a_report_lists_what_differs_and_no_more(changes: dict[str, object], names: dict[str, bool]) -> None:
    assert names_of(idiomatic(script(**changes))) == names


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"samples": 63}, "1 of 63 samples come twice in each epoch, so that 2 ranks have as many"),
        ({"samples": 63, "more": ", drop_last=True"}, "1 of 63 samples of each epoch are left out"),
        ({"batch": 15}, "batches have 14 samples and not 15: 15 // 2 = 7 on each of 2 ranks"),
    ],
)
def test_numbers_that_the_text_tells_are_told(changes: dict[str, object], text: str) -> None:
    (only,) = idiomatic(script(**changes)).differences

    assert text in only.text


def test_what_stays_is_told_with_numbers() -> None:
    assert "a step takes 16 samples: 8 on each of 2 ranks" in idiomatic(script()).kept


def test_the_exact_style_lists_nothing() -> None:
    conversion = converted(script())

    assert conversion.differences == ()
    assert conversion.kept == ()
