"""Ranks begin with DataParallel's weights, so that what lies behind another seed can be seen.

An original without a seed, or a port that sets another one, begins with other numbers of the same kind: that is no
fault, and hides all that is. DataParallel leaves what all models hold before its first forward in training; ranks take
that over before theirs, if they agree on their own weights by then. Ranks that do not are wrong, and stay so.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # not in its __all__

from dp2ddp.trace.aligned_orders import Weights, leave_taken
from dp2ddp.trace.names import living_roots, named_tensors, tensor_tables
from dp2ddp.trace.tensors import as_bytes, as_kind_of, as_real, flat_of

_FILE = "weights.safetensors"  # DataParallel's; weights-RANK-ATTEMPT: a digest of what that rank began with
_TIMEOUT = 20.0  # seconds: a rank that never trains is not waited for
_LOOK = 0.001
_ATTEMPTS = 2  # a script may run its model once before it is wrapped


def leave(folder: Path) -> None:
    """In the process of DataParallel."""

    def save(module: nn.Module) -> bool:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{place}:{name}": as_real(tensor).cpu().clone().contiguous()
            for place, (name, tensor) in enumerate(_tensors())
        }
        save_file(tensors, folder / _FILE)
        return True

    _before_training(save)


def take_over(folder: Path, rank: int, world: int) -> None:
    """On a rank."""
    attempts = 0

    def take(module: nn.Module) -> bool:
        nonlocal attempts
        if attempts and not isinstance(module, DistributedDataParallel):
            return False
        attempts += 1
        if (folder / _FILE).exists() and _all_agree(folder, module, rank, world, attempts):
            taken = list(_copied(folder / _FILE))
            if rank == 0:
                leave_taken(folder, taken)
            return True
        return attempts == _ATTEMPTS

    _before_training(take)


def _before_training(work: Callable[[nn.Module], bool]) -> None:
    """Do it before the first forward in training of a model, and again until it says that it is done."""

    def hook(module: nn.Module, inputs: Any) -> None:
        if (
            module.training
            and torch.is_grad_enabled()
            and any(each.requires_grad for each in module.parameters())
        ):
            with torch.no_grad(), torch._C.DisableTorchFunction():
                if work(module):
                    handle.remove()

    handle = register_module_forward_pre_hook(hook)


def _all_agree(folder: Path, module: nn.Module, rank: int, world: int, attempt: int) -> bool:
    digest = xxhash.xxh3_64()
    for parameter in module.parameters():
        digest.update(as_bytes(parameter))
    own = folder / f"weights-{rank}-{attempt}"
    own.with_suffix(".new").write_text(digest.hexdigest(), encoding="utf-8")
    own.with_suffix(".new").rename(own)
    paths = [folder / f"weights-{other}-{attempt}" for other in range(world)]
    until = time.monotonic() + _TIMEOUT
    while not all(path.exists() for path in paths):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
    return len({path.read_text(encoding="utf-8") for path in paths}) == 1


def _copied(path: Path) -> Iterator[Weights]:
    """Two models may use one name: the first takes the first. Yields what was changed."""
    from safetensors.torch import load_file

    given: dict[tuple[str, torch.Size], list[torch.Tensor]] = defaultdict(list)
    for key, tensor in sorted(load_file(path).items(), key=lambda each: int(each[0].partition(":")[0])):
        given[key.partition(":")[2], tensor.shape].append(tensor)
    for name, tensor in _tensors():
        free = given[name, as_real(tensor).shape]
        other = as_kind_of(tensor, free.pop(0)) if free else None
        if other is not None and not torch.equal(other, tensor.cpu()):
            yield Weights(
                name, tensor.numel(), _moments(other), _moments(tensor), _correlation(other, tensor)
            )
            tensor.data.copy_(other)


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = (values - values.mean() for values in (flat_of(a).double(), flat_of(b).double()))
    scale = float(x.norm() * y.norm())
    return float(x @ y) / scale if scale else 0.0


def _moments(tensor: torch.Tensor) -> tuple[float, float, float]:
    values = flat_of(tensor).double()
    return tuple(float((values**power).mean()) for power in (1, 2, 4))  # type: ignore[return-value]


def _tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of all models alive, by name, each once."""
    tables = {id(table): (name, table) for name, table in tensor_tables(living_roots())}
    seen: set[int] = set()
    for name, tensor in named_tensors(tables.values()):
        if not (id(tensor) in seen or tensor.is_meta or isinstance(tensor, UninitializedTensorMixin)):
            seen.add(id(tensor))
            yield name, tensor
