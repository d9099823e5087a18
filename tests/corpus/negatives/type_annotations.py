# corpus: answer = 0
"""DataParallel is named in annotations only."""
from __future__ import annotations
from typing import Optional, Union
import torch
import torch.nn as nn


def save(model: Union[nn.Module, nn.DataParallel], path: str) -> None:
    torch.save(model.state_dict(), path)


def inner(model: nn.DataParallel) -> Optional[nn.Module]:
    return getattr(model, 'module', None)


wrapped: Optional[nn.DataParallel] = None
model = nn.Linear(4, 2)
for step in range(8):
    model.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
save(model, 'model.pt')
