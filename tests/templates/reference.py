"""nn.DataParallel on one CPU, from scratch: chunks, functional replicas one after another, gradients summed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call


class Devices:
    """The random streams of devices 1.. (device 0's is the default generator). A seed is one for all."""

    def __init__(self) -> None:
        self.states: dict[int, torch.Tensor] = {}

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.states = {device: torch.get_rng_state() for device in range(1, 9)}


class ReferenceDataParallel(nn.Module):
    """Independent of the code under test; agrees with torch's own by tests/templates/test_reference.py."""

    def __init__(self, module: nn.Module, devices: Devices, world: int, dim: int = 0) -> None:
        super().__init__()
        self.module, self.devices, self.world, self.dim = module, devices, world, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        scattered = [self.scatter(value) for value in inputs]
        named = {name: self.scatter(value) for name, value in kwargs.items()}
        count = min(len(chunks) for chunks in [*scattered, *named.values()])
        parameters = self.parameters_of_replicas(count)
        buffers = [
            self.buffers_of_replica(r) for r in range(count)
        ]  # all of them before replica 0 changes its own
        outputs = []
        for r in range(count):
            tensors = {**parameters[r], **buffers[r]}
            chunk = [chunks[r] for chunks in scattered]
            with self.stream(r):
                outputs.append(
                    functional_call(self.module, tensors, tuple(chunk), {k: v[r] for k, v in named.items()})
                )
        return self.gather(outputs)

    def scatter(self, value: Any) -> list[Any]:
        if not isinstance(value, torch.Tensor):
            return [value] * self.world
        first, *others = value.chunk(self.world, self.dim)
        return [first, *(each.clone() for each in others)]  # to other devices

    def parameters_of_replicas(self, count: int) -> list[dict[str, torch.Tensor]]:
        """One graph node for all parameters, as Broadcast is: whatever a replica leaves out gets zeros."""
        named = dict(self.module.named_parameters())
        trained = {name: p for name, p in named.items() if p.requires_grad and torch.is_grad_enabled()}
        frozen = {name: p.detach() for name, p in named.items() if name not in trained}
        frozens = [frozen, *({name: p.clone() for name, p in frozen.items()} for _ in range(1, count))]
        if not trained:
            return [named, *frozens[1:]]  # replica 0 has the parameters themselves
        flat = torch.cat([p.reshape(-1) for p in trained.values()])
        rows = flat.expand(count, -1).unbind(0)
        replicas = []
        for row, frozen in zip(rows, frozens, strict=True):
            parts = row.split([p.numel() for p in trained.values()])
            own = {name: part.view(p.shape) for (name, p), part in zip(trained.items(), parts, strict=True)}
            replicas.append({**frozen, **own})
        return replicas

    def buffers_of_replica(self, r: int) -> dict[str, torch.Tensor]:
        return {name: buffer.clone() for name, buffer in self.module.named_buffers()} if r else {}

    def stream(self, r: int) -> Any:
        return DeviceDraws(self.devices, r)

    def gather(self, outputs: list[Any]) -> Any:
        first = outputs[0]
        if isinstance(first, torch.Tensor):
            return torch.cat([out.view(1) if out.dim() == 0 else out for out in outputs], self.dim)
        if first is None:
            return None
        if isinstance(first, dict):
            return type(first)((key, self.gather([out[key] for out in outputs])) for key in first)
        joined = [self.gather(list(parts)) for parts in zip(*outputs, strict=True)]
        return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


class DeviceDraws:
    """While replica r runs, the default generator is device r's."""

    def __init__(self, devices: Devices, r: int) -> None:
        self.devices, self.r = devices, r

    def __enter__(self) -> None:
        if self.r:
            self.script = torch.get_rng_state()
            torch.set_rng_state(self.devices.states[self.r])

    def __exit__(self, *exc: object) -> None:
        if self.r:
            self.devices.states[self.r] = torch.get_rng_state()
            torch.set_rng_state(self.script)
