"""Where tensors go that were saved on a GPU."""

from typing import Any

import torch


def to_own_device(storage: Any, location: str) -> Any:
    """A map_location for torch.load: what was saved on any GPU comes to this rank's; the rest stays where it is."""
    on_gpu = location.startswith("cuda") and torch.cuda.is_available()
    return storage.cuda(torch.cuda.current_device()) if on_gpu else None
