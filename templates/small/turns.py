"""Forwards that ranks run one after another."""

import copy
import io
import random
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map_only

from .replicas import make_replica
from .rows import Form, from_rank
from .streams import ReplicaStreams, host_streams, set_host_streams


class ReplicaRun:
    """One forward of a replica on each rank, and what DataParallel's process sees of all of them: prints, errors, draws, memories.

    Whether a forward draws on the host, or fills a list that outlives it, shows when it runs: the ranks then run their replicas once more, one
    after another, and do so from then on: each begins where the one before has ended, as the replicas of one process do.
    """

    def __init__(self, wrapper: Any, parts: list[Any], copies: Any, has_rows: bool) -> None:
        self.wrapper, self.parts, self.copies, self.has_rows = wrapper, parts, copies, has_rows
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def __call__(self, inputs: Any, kwargs: Any) -> Any:
        streams, memory = host_streams(), Memory(self.parts)
        device_stream = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        device_streams = dict(ReplicaStreams.device)
        buffers = (
            [(b, b.clone()) for part in self.parts for b in part._buffers.values() if b is not None]
            if any(part.training for part in self.parts)
            else []
        )
        if not vars(self.wrapper).get("in_turn"):
            parameters = [
                *dict.fromkeys(p for part in self.parts for p in part._parameters.values() if p is not None)
            ]
            norms, weights = (
                norms_of(parameters),
                None if "has_run" in vars(self.wrapper) else [p.detach().clone() for p in parameters],
            )
            vars(self.wrapper)["has_run"] = True
            outputs, text, error = self.run(inputs, kwargs)
            changed = self.has_rows and (not same_streams(streams, host_streams()) or bool(memory.changes()))
            flags = self.tell([len(text), error is not None, changed])
            if not flags[:, 2].any():
                set_host_streams(streams)
                return self.end(outputs, text, error, flags)
            vars(self.wrapper)["in_turn"] = True
            memory.restore()
            for buffer, before in [*buffers, *zip(parameters, weights or ())]:
                buffer.data.copy_(before)
            if not torch.equal(norms, norms_of(parameters)):
                raise RuntimeError(
                    "a forward writes into weights, and draws or keeps something as well, but not from its first call on"
                )
            if device_stream is not None:
                torch.cuda.set_rng_state(device_stream)
                ReplicaStreams.device = device_streams
        for rank in range(self.world):
            if rank == self.rank:
                set_host_streams(streams)
                outputs, text, error = self.run(inputs, kwargs)
                news = (host_streams(), memory.news()) if self.has_rows else (streams, [])
            mine = rank == self.rank
            told = news[1] if mine else None
            box = [
                (
                    news[0],
                    tree_map_only(
                        torch.Tensor, lambda leaf: Form(leaf) if leaf.requires_grad else leaf, told
                    ),
                )
                if mine
                else None
            ]
            dist.broadcast_object_list(box, rank)
            streams, forms = box[0]
            memory.hear(keep_graphs(forms, told, rank, [*self.copies.values()]))
        set_host_streams(streams)
        return self.end(outputs, text, error, self.tell([len(text), error is not None, False]))

    def run(self, inputs: Any, kwargs: Any) -> Any:
        shown, text = sys.stdout, io.StringIO()
        outputs = error = None
        if self.rank or not self.has_rows:
            sys.stdout = text
        try:
            with ReplicaStreams()(self.has_rows):
                outputs = make_replica(self.parts, self.copies)(*inputs, **kwargs)
        except Exception as raised:
            error = raised
        finally:
            sys.stdout = shown
        return outputs, text.getvalue() if self.has_rows else "", error if self.has_rows else None

    def tell(self, numbers: list[Any]) -> torch.Tensor:
        each = [torch.empty(len(numbers), dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(each, torch.tensor([int(number) for number in numbers]))
        return torch.stack(each)

    def end(self, outputs: Any, text: str, error: Any, flags: torch.Tensor) -> Any:
        if flags[:, :2].any():
            all_news: list[Any] = [None] * self.world
            try:
                dist.all_gather_object(all_news, (text, error))
            except TypeError:
                dist.all_gather_object(all_news, (text, error and RuntimeError(str(error))))
            for own_text, _ in all_news[1:]:
                sys.stdout.write(own_text)
            first = next((raised for _, raised in all_news if raised is not None), None)
            if first is not None:
                raise error or first
        return outputs


def same_streams(one: Any, other: Any) -> bool:
    def same(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor):
            return bool(torch.equal(a, b))
        if isinstance(a, (tuple, list)):
            return all(map(same, a, b))
        return bool((a == b).all()) if hasattr(a, "all") else bool(a == b)

    return same(one, other)


def keep_graphs(forms: Any, told: Any, owner: int, ties: list[torch.Tensor]) -> Any:
    """What one rank's forward keeps, on all ranks; tensors keep the way back to that rank."""
    wanted = [leaf for leaf in tree_leaves(forms) if isinstance(leaf, Form)]
    if not wanted:
        return forms if told is None else told
    own = iter([leaf for leaf in tree_leaves(told) if isinstance(leaf, torch.Tensor) and leaf.requires_grad])
    return tree_map_only(Form, lambda form: from_rank(form, owner, next(own, None), ties), forms)


class Memory:
    """What forwards may fill: lists, dicts, sets and numbers of a module, its class, its hooks, the file that its forward stands in, and of the
    script's own objects that are found there."""

    def __init__(self, parts: list[Any]) -> None:
        self.places: list[tuple[Any, Any]] = []
        self.seen: set[int] = {*map(id, parts)}
        for part in parts:
            hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
            if not is_of_script(type(part)) and not hooks:
                continue
            for hook in hooks:
                self.visit_function(hook)
            if is_of_script(type(part)):
                self.visit(vars(part), numbers=False)
                self.visit(type(part).__dict__, type(part))
                self.visit_function(type(part).forward)
        self.before = [self.copied(self.look(place)) for place in self.places]

    def visit(self, values: Any, holder: Any = None, numbers: bool = True) -> None:
        holder = values if holder is None else holder
        if id(holder) in self.seen:
            return
        self.seen.add(id(holder))
        for name, value in list(values.items()):
            if isinstance(name, str) and name.startswith("_") and (not numbers or name.startswith("__")):
                continue
            if (
                isinstance(value, CONTAINERS)
                or is_tensor_like(value)
                or stream_of(value) is not None
                or numbers
                and (isinstance(value, (int, float, str)) or value is None)
            ):
                self.places.append((holder, name))
            elif (
                is_of_script(type(value))
                and not isinstance(value, (type, torch.nn.Module))
                and hasattr(value, "__dict__")
            ):
                self.visit(vars(value))

    def visit_function(self, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        if not hasattr(function, "__code__") and owner is None and is_of_script(type(function)):
            owner, function = function, type(function).__call__
        if owner is not None and not isinstance(owner, torch.nn.Module) and hasattr(owner, "__dict__"):
            self.visit(vars(owner))
        function = getattr(function, "__func__", function)
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        for name, cell in zip(names, getattr(function, "__closure__", None) or ()):
            self.visit({name: cell.cell_contents})
        if hasattr(function, "__globals__") and is_of_script(function):
            self.visit(function.__globals__)

    @staticmethod
    def look(place: tuple[Any, Any]) -> Any:
        holder, name = place
        value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name)
        state = stream_of(value)
        return value if state is None else state

    @staticmethod
    def copied(value: Any) -> Any:
        if is_tensor_like(value):
            if value.nbytes > BIG:
                return value, getattr(value, "_version", 0)  # seen if it changes, but it cannot be put back
            return value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()
        if isinstance(value, list):
            return [Memory.copied(each) if is_tensor_like(each) else each for each in value]
        if isinstance(value, dict):
            return {key: Memory.copied(each) if is_tensor_like(each) else each for key, each in value.items()}
        return copy.copy(value) if isinstance(value, CONTAINERS) else value

    def changes(self) -> list[int]:
        return [k for k, place in enumerate(self.places) if not alike(self.look(place), self.before[k])]

    def news(self) -> list[tuple[int, Any]]:
        told = [(k, self.look(self.places[k])) for k in self.changes()]
        if any(
            isinstance(leaf, torch.Tensor) and leaf.requires_grad
            for leaf in tree_leaves([value for _, value in told])
        ):
            raise RuntimeError(
                "a forward keeps a tensor with its gradient's graph outside of its outputs: other ranks cannot have that"
            )
        return told

    def hear(self, told: list[tuple[int, Any]]) -> None:
        for k, value in told:
            if value is not self.look(self.places[k]):
                self.put(k, value)
            self.before[k] = self.copied(self.look(self.places[k]))

    def put(self, k: int, value: Any) -> None:
        holder, name = self.places[k]
        owner = holder.get(name) if isinstance(holder, dict) else getattr(holder, name)
        if stream_of(owner) is not None:
            return set_stream(owner, value[1])
        kept = self.look(self.places[k])
        if isinstance(value, tuple) and len(value) == 2 and is_tensor_like(value[0]):
            raise RuntimeError(
                f"a forward writes into {name}, which is too large to be kept the same on all ranks"
            )
        if isinstance(kept, torch.Tensor) and isinstance(value, torch.Tensor) and kept.shape == value.shape:
            kept.data.copy_(value)
        elif (
            is_tensor_like(kept)
            and is_tensor_like(value)
            and not isinstance(kept, torch.Tensor)
            and kept.shape == value.shape
        ):
            kept[...] = value
        elif isinstance(kept, list):
            kept[:] = value
        elif isinstance(kept, (dict, set)):
            kept.clear()
            kept.update(value)
        elif isinstance(holder, dict):
            holder[name] = value
        else:
            setattr(holder, name, value)

    def restore(self) -> None:
        for k in self.changes():
            self.put(k, self.before[k])
            self.before[k] = self.copied(self.look(self.places[k]))


BIG = 2**20


def stream_of(value: Any) -> Any:
    """The state of a generator object."""
    for method in ("get_state", "getstate"):
        if hasattr(type(value), method) and (
            isinstance(value, (torch.Generator, random.Random))
            or type(value).__module__.startswith("numpy.random")
        ):
            return "stream", getattr(value, method)()
    return ("stream", value.bit_generator.state) if hasattr(type(value), "bit_generator") else None


def set_stream(owner: Any, state: Any) -> None:
    if hasattr(type(owner), "bit_generator"):
        owner.bit_generator.state = state
    else:
        (owner.set_state if hasattr(owner, "set_state") else owner.setstate)(state)


def is_tensor_like(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        or type(value).__module__ == "numpy"
        and hasattr(value, "nbytes")
        and hasattr(value, "copy")
    )


CONTAINERS = (list, dict, set)


def is_of_script(kind: Any) -> bool:
    """Whether a class or function is the script's own, of no library."""
    home = kind.__module__ or ""
    if home not in OF_SCRIPT:
        file = getattr(sys.modules.get(home), "__file__", None) or (
            "" if home == "__main__" else "lib/python"
        )
        OF_SCRIPT[home] = "site-packages" not in file and "lib/python" not in file and home != __name__
    return OF_SCRIPT[home]


OF_SCRIPT: dict[str, bool] = {"argparse": True, "types": True}


def alike(one: Any, other: Any) -> bool:
    if isinstance(other, tuple) and len(other) == 2 and is_tensor_like(other[0]):
        return one is other[0] and getattr(one, "_version", 0) == other[1]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one.detach(), other))
        )
    if is_tensor_like(one) and is_tensor_like(other):
        return one.shape == other.shape and bool((one == other).all())
    if one is other:
        return True
    if is_tensor_like(one) or is_tensor_like(other):
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and alike([*one.values()], [*other.values()])
    return type(one) is type(other) and bool(one == other)


def norms_of(parameters: list[torch.Tensor]) -> torch.Tensor:
    norms = torch._foreach_norm([p.detach() for p in parameters]) if parameters else []
    return torch.stack([norm.double() for norm in norms]) if norms else torch.empty(0)
