"""Subclasses of DataParallel and DataLoader that libraries have: known by their names, installed or not."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.conversion import Conversion
from tests.codemod import scripts

STEPS = "\nfor graphs in loader:\n    optimizer.zero_grad()\n    net(graphs).mean().backward()\n    optimizer.step()\n"


def converted(text: str, **options: str) -> Conversion:
    return scripts.converted(text + STEPS, **options)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch_geometric\nnet = torch_geometric.nn.DataParallel(Net())", "torch_geometric.nn.DataParallel"),
        ("import torch_geometric.nn as g\nnet = g.data_parallel.DataParallel(Net())", "g.data_parallel.DataParallel"),
        ("from torch_geometric.nn import DataParallel as DP\nnet = DP(Net())", "DP"),
        ("from mmcv.parallel import MMDataParallel\nnet = MMDataParallel(Net())", "MMDataParallel"),
        ("from mmcv.parallel.data_parallel import MMDataParallel\nnet = MMDataParallel(Net())", "MMDataParallel"),
    ],
)  # fmt: skip
def test_the_librarys_class_stays_over_another_base(text: str, line: str) -> None:
    conversion = converted(text)
    assert conversion.hazards == ()
    assert f"net = rebase({line}, LibrarysOnRanks)(Net())" in conversion.entry.after


def test_a_class_of_the_project_over_the_librarys_is_converted_where_it_is_derived() -> None:
    text = """
import torch
from torch_geometric.nn import DataParallel
class Own(DataParallel):
    def gather(self, outputs, output_device):
        print(len(outputs))
        return outputs
net = Own(torch.nn.Linear(2, 2))
if isinstance(net, torch.nn.DataParallel) and isinstance(net, (Own, DataParallel)):
    net.module.eval()"""
    conversion = converted(text)
    assert conversion.hazards == ()  # what the wrapper itself prints, it prints once
    assert "class Own(rebase(DataParallel, LibrarysOnRanks)):" in conversion.entry.after
    assert (
        "isinstance(net, AnyDataParallel) and isinstance(net, (Own, DataParallel)):" in conversion.entry.after
    )


def test_a_type_is_asked_for_wherever_the_class_that_overrides_parts_is() -> None:
    """It was the wrapper of a whole batch, which such a class is not: its `module.` stayed in checkpoints."""
    text = """
import torch
class Own(torch.nn.DataParallel):
    def scatter(self, inputs, kwargs, device_ids):
        return super().scatter(inputs, kwargs, device_ids)
net = Own(torch.nn.Linear(2, 2))
other = torch.nn.DataParallel(torch.nn.Linear(2, 2))
print(isinstance(net, torch.nn.DataParallel), type(other) is torch.nn.DataParallel)"""
    after = converted(text).entry.after
    assert "isinstance(net, AnyDataParallel), type(other) is WholeBatch)" in after


def test_one_device_is_a_plain_call() -> None:
    conversion = converted(
        "from mmcv.parallel import MMDataParallel\nnet = MMDataParallel(Net(), device_ids=[0])"
    )
    assert not conversion.changed
    assert [note.because for note in conversion.notes] == [
        "one device: DataParallel is a plain call there, so it stays as it is"
    ]


@pytest.mark.parametrize(
    ("call", "helper"),
    [
        ("DataListLoader(graphs, batch_size=8, shuffle=True, num_workers=2)", "Rank0Loader"),
        ("DataListLoader(graphs, sampler=own, num_workers=2)", "Rank0SamplerLoader"),
        ("DataListLoader(graphs, batch_size=8)", None),
    ],
)
@pytest.mark.parametrize("home", ["torch_geometric.loader", "torch_geometric.data"])
def test_its_loader(call: str, helper: str | None, home: str) -> None:
    text = f"from {home} import DataListLoader\nfrom torch_geometric.nn import DataParallel\n"
    after = converted(f"{text}loader = {call}\nnet = DataParallel(Net())").entry.after
    new = call.replace("DataListLoader", f"rebase(DataListLoader, {helper})") if helper else call
    assert f"loader = {new}\n" in after


def test_what_is_converted_stays_as_it_is() -> None:
    text = "from torch_geometric.loader import DataListLoader\nfrom torch_geometric.nn import DataParallel\n"
    once = converted(
        f"{text}loader = DataListLoader(graphs, num_workers=2)\nnet = DataParallel(Net())"
    ).entry.after
    assert "rebase(DataParallel, " in once
    again = scripts.converted(once)
    assert again.hazards == ()
    assert again.entry.after == once


def test_the_idiomatic_style_says_that_it_cannot() -> None:
    conversion = converted(
        "from torch_geometric.nn import DataParallel\nnet = DataParallel(Net())", style="idiomatic"
    )
    assert [hazard.code for hazard in conversion.hazards] == ["DDP702"]


def test_whatever_else_is_called_data_parallel_is_a_hazard_as_before() -> None:
    conversion = converted("from encoding.parallel import DataParallelModel\nnet = DataParallelModel(Net())")
    assert [hazard.code for hazard in conversion.hazards] == ["DDP902"]
