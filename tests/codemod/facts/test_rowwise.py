"""What may be done to a part of the batch before the forward without touching how its rows are cut."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
net = torch.nn.DataParallel(Net())
loader = DataLoader(TensorDataset(a, b), batch_size=8)
for x, y in loader:
    x = EXPRESSION
    out = net(x)
    criterion(out, y)
"""


def stopper(expression: str) -> str | None:
    return facts_of(SCRIPT.replace("EXPRESSION", expression)).flow.stopper


@pytest.mark.parametrize(
    "expression",
    [
        *("x.view(x.size(0), -1)", "x.reshape(len(x), 28 * 28)", "x.view(x.shape[0], -1, x.size(2)).cuda()"),
        *(
            "x.flatten(1)",
            "torch.flatten(x, start_dim=1)",
            "x.unsqueeze(1)",
            "x.squeeze(1)",
            "x.transpose(1, 2)",
        ),
        *(
            "x.permute(0, 3, 1, 2).contiguous()",
            "x.float() / 255",
            "2 * x - 1",
            "x.float().div(255.).sub(0.5)",
        ),
        *("x[:, 0]", "x[:, :, 2:-2]", "x[:, None]"),
    ],
)
def test_rows_stay_rows(expression: str) -> None:
    assert stopper(expression) is None


@pytest.mark.parametrize(
    "expression",
    [
        *("x.view(-1, 784)", "x.view(y.size(0), -1)", "x.view(-1)", "x.flatten()", "x.flatten(0, 1)"),
        *(
            "x.unsqueeze(0)",
            "x.squeeze()",
            "x.squeeze(-1)",
            "x.transpose(0, 1)",
            "x.transpose(-1, -2)",
            "x.t()",
        ),
        *("x.permute(1, 0, 2)", "x - x.mean()", "x / x.max()", "x * scale", "x + torch.randn_like(x)"),
        *("x[0]", "x[:4]", "x[:, y]", "x[perm]", "x[::2, 0]", "x.view(x.size(0), y.size(0))"),
    ],
)
def test_rows_may_be_mixed_or_cut_otherwise(expression: str) -> None:
    assert "used before the forward" in (stopper(expression) or "")


def test_a_tensor_that_is_taken_apart_is_taken_apart_by_rows() -> None:
    text = (
        SCRIPT.replace("    x = EXPRESSION\n", "")
        .replace("TensorDataset(a, b)", "Rows()")
        .replace(
            "net =",
            "class Rows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i]\nnet =",
        )
    )
    assert "row by row" in (facts_of(text).flow.stopper or "")
    whole = text.replace("for x, y in loader", "for x in loader").replace("net(x)", "net(x[0])")
    assert "beside the batch" in (facts_of(whole).flow.stopper or "")
