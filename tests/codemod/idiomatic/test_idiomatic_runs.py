"""The idiomatic style, run: it says what differs, and `verify` finds that; each rank trains its part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from verdicts import Document, forked_verdicts

from dp2ddp.codemod.idiomatic.ddp710_idiomatic_differences import StyleDifference
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.cli.scripts import script
from tests.codemod.idiomatic.scripts import idiomatic
from tests.codemod.idiomatic.scripts import script as written

pytestmark = pytest.mark.torchrun

SAVES = "torch.save(net.state_dict(), 'net.pt')"


def training(**changes: object) -> str:
    """A script whose loss goes down, and that saves what it has."""
    samples = changes.get("samples", 64)
    drawn = f"inputs, targets = torch.randn({samples}, 8), torch.zeros({samples}, dtype=torch.long)\n"
    text = written(**{"log": "print('epoch', epoch)", **changes})
    assert drawn in text
    return (
        text.replace(drawn, f"inputs = torch.randn({samples}, 8)\ntargets = inputs[:, :3].argmax(1)\n")
        + f"{SAVES}\n"
    )


def verified(folder: Path, server: Server, text: str) -> Document:
    """What verify says of a script on two devices, and of what the idiomatic style makes of it."""
    script(folder, text)
    (folder / "train_ddp.py").write_text(idiomatic(text).after)
    (verdict,) = forked_verdicts(server, folder / "train.py", folder / "train_ddp.py", [2])
    return verdict


def certain(text: str) -> list[StyleDifference]:
    """What the report lists that depends on no numbers which the text does not tell."""
    return [one for one in idiomatic(text).differences if one.certain]


def test_where_the_report_is_certain_of_nothing_and_batches_divide_it_trains_the_same(
    tmp_path: Path, server: Server
) -> None:
    text = training()
    assert certain(text) == []

    verdict = verified(tmp_path, server, text)

    assert verdict["same"] is True
    assert verdict["causes"] == []


@pytest.mark.parametrize(
    ("changes", "name", "cause"),
    [
        ({"shuffle": True}, "order of samples", "other-order"),
        ({"layer": " nn.BatchNorm1d(16),"}, "batch norm", "batchnorm-rows"),
        ({"layer": " nn.Dropout(0.5),"}, "dropout", "other-random-numbers"),
        (
            {"criterion": "nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 9.0]).cuda())"},
            "loss",
            "local-counts",
        ),
        ({"log": "print(loss.item())"}, "training figures", "local-numbers"),
    ],
)
def test_verify_finds_the_one_thing_that_the_report_announces(
    tmp_path: Path, server: Server, changes: dict[str, object], name: str, cause: str
) -> None:
    text = training(**changes)
    (announced,) = certain(text)

    verdict = verified(tmp_path, server, text)

    codes = [one["code"] for one in verdict["causes"]]
    assert announced.name == name
    assert verdict["same"] is False
    assert codes[0] in announced.causes
    assert cause in codes


@pytest.mark.parametrize(
    ("changes", "name", "cause"),
    [({"samples": 63}, "last batch", "padded-rows"), ({"batch": 15}, "batch size", "batch-division")],
)
def test_verify_finds_what_hangs_on_numbers(
    tmp_path: Path, server: Server, changes: dict[str, object], name: str, cause: str
) -> None:
    text = training(**changes)
    announced = {one.name: one.causes for one in idiomatic(text).differences}

    verdict = verified(tmp_path, server, text)

    codes = [one["code"] for one in verdict["causes"]]
    assert verdict["same"] is False
    assert codes[0] in announced[name]
    assert cause in codes


def test_each_rank_trains_its_part_and_all_end_with_the_same_weights(tmp_path: Path, server: Server) -> None:
    text = training(shuffle=True, samples=96, log="print(loss.item())").replace("range(2)", "range(12)")
    text = text.replace(
        "inputs = torch.randn(96, 8)\n",
        "inputs = torch.randn(96, 8)\ninputs[:, 7] = torch.arange(96) / 100\n",
    )
    conversion = idiomatic(text)
    assert {one.name for one in certain(text)} == {"order of samples", "training figures"}
    after = conversion.after.replace(
        "optimizer.zero_grad()", "optimizer.zero_grad(); seen.append(x[:, 7].cpu())"
    )
    after = after.replace("import torch\n", "import torch\nseen, losses = [], []\n", 1)
    after = after.replace("loss.backward()", "loss.backward(); losses.append(loss.item())")
    tail = "torch.save([seen, losses, [one.data.cpu() for one in net.parameters()]], f'rank{dist.get_rank()}.pt')\n"
    after = after.replace("dist.destroy_process_group()", tail + "dist.destroy_process_group()")
    script(tmp_path, after)

    result = forked(server, tmp_path, "run", "--virtual", "--mode", "ddp", "-n", 2, "train.py")

    assert result.exit_code == 0, result.stdout + result.stderr
    (seen, losses, weights), (other, more, others) = (
        torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)
    )
    assert [len(one) for one in (*seen, *other)] == [
        8
    ] * 144  # batches of 16 on two ranks, 6 steps, 12 epochs
    assert sum(losses[-6:]) + sum(more[-6:]) < 0.7 * (sum(losses[:6]) + sum(more[:6]))
    assert all(torch.equal(one, each) for one, each in zip(weights, others, strict=True))
    orders = []
    for epoch in range(12):
        rows = [
            (100 * one).round().int().tolist() for one in (*seen[6 * epoch :][:6], *other[6 * epoch :][:6])
        ]
        orders.append([row for batch in rows for row in batch])
        assert sorted(orders[-1]) == list(range(96))  # each sample once an epoch
    assert len({tuple(one) for one in orders}) == 12  # in another order each time


def test_without_torchrun_it_says_so(tmp_path: Path, server: Server) -> None:
    script(tmp_path, idiomatic(training()).after)

    result = forked(server, tmp_path, "run", "--virtual", "--mode", "dp", "train.py")

    assert result.exit_code == 3
    assert "LOCAL_RANK" in result.stdout + result.stderr
