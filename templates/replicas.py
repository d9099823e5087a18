"""What runs on a rank: a replica, as torch.nn.parallel.replicate makes it."""

from contextlib import ExitStack
from typing import Any, ContextManager, Dict, List, Mapping, Sequence

import torch
import torch.distributed as dist

from .broadcast import group_of
from .trees import map_tensors


def share_tensors(tensors: Sequence[torch.Tensor], owner: int = 0) -> None:
    """Give a rank's numbers to all ranks: as bytes, in one message for all types of number that lie in order."""
    messages: Dict[Any, List[torch.Tensor]] = {}
    for tensor in tensors:
        numbers = tensor.data  # autograd may have saved the tensor: its version stays
        numbers = torch.view_as_real(numbers) if tensor.is_complex() else numbers
        message = messages.setdefault(group_of(tensor) or dist.group.WORLD, [])
        message.append(numbers.view(-1).view(torch.uint8) if numbers.is_contiguous() else numbers)
    for group, message in messages.items():
        dist._broadcast_coalesced(group, message, 2**28, owner)  # type: ignore[attr-defined]


class ModuleState:
    """What a module holds, looked up once for a forward."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.parts: List[Any] = [*module.modules()]
        parameters = (p for part in self.parts for p in part._parameters.values() if p is not None)
        self.parameters = [*dict.fromkeys(parameters)]
        self.written: Sequence[torch.Tensor] = ()  # parameters, if a forward has written into some

    def buffers(self) -> List[torch.Tensor]:
        return [each for part in self.parts for each in part._buffers.values() if each is not None]

    def copy_buffers(self) -> Dict[Any, torch.Tensor]:
        """What a replica has for buffers that autograd may save: copies on ranks > 0, whose own become rank 0's.

        Of batch norm's, which are many, it saves none.
        """
        of_batch_norm = torch.nn.BatchNorm2d.forward
        parts = (part for part in self.parts if getattr(type(part), "forward", None) is not of_batch_norm)
        buffers = [each for part in parts for each in part._buffers.values() if each is not None]
        saved = [each for each in buffers if torch.is_grad_enabled() and not each.requires_grad]
        return {each: each.clone() if dist.get_rank() else each for each in saved}

    def layouts(self, copies: Mapping[Any, torch.Tensor]) -> List[Any]:
        """Sizes and strides of buffers behind a forward: observers' are empty until the first batch."""
        return [(each.shape, each.stride()) for each in (copies.get(each, each) for each in self.buffers())]

    def share(self, layouts: Sequence[Any] = (), beside: Sequence[torch.Tensor] = ()) -> None:
        """Behind a forward, or what backward runs of it: what rank 0's replica has written is everybody's."""
        with torch.inference_mode(False):  # a training goes on with what an evaluation leaves
            for parameter in self.written if dist.get_rank() else ():  # autograd may have saved it
                parameter.data = parameter.data.clone()
            for each, layout in zip(self.buffers(), layouts):
                if (each.shape, each.stride()) != layout:
                    each.data = torch.empty_strided(*layout, dtype=each.dtype, device=each.device)
        # batch norm writes into running statistics that are parameters, and their version stays
        statistics = [p for p in self.parameters if p.dim() == 1 and not p.requires_grad]
        share_tensors([*(self.written or statistics), *self.buffers(), *beside])


def learned_beside(state: ModuleState) -> List[torch.Tensor]:
    """What a module has beside parameters that wants a gradient: plain attributes (DARTS keeps its alphas so), buffers.

    Not what a hook computes anew before each forward, as weight_norm does.
    """
    return [
        each
        for part in (state.parts if torch.is_grad_enabled() else ())
        for each in (*part._buffers.values(), *vars(part).values())
        if type(each) is torch.Tensor and each.requires_grad
        if each.is_leaf or not part._forward_pre_hooks
    ]


def make_replica(state: ModuleState, copies: Mapping[Any, torch.Tensor], number: Any = None) -> Any:
    """A copy of a module with copies in place of what it learns; what forward assigns to it is gone with it.

    Buffers without a copy are the module's own: rank 0's replica changes them, as replica 0 of DataParallel does.
    Copies are plain tensors; but without gradients, the first replica (by number, else by rank) has the parameters.
    """
    replicas: Dict[Any, Any] = {part: copy_part(part) for part in state.parts}
    is_first = not (dist.get_rank() if number is None else number)
    has_parameters = is_first and all(copy is each for each, copy in copies.items())
    has_others = any(type(each) is torch.Tensor for each in copies)
    for part, replica in replicas.items():
        parameters = part._parameters.items()
        own = {name: copies[p] for name, p in parameters if p is not None}
        children = {name: replicas.get(child) for name, child in part._modules.items()}
        if isinstance(part, torch.jit.ScriptModule):  # what it has is in C++
            buffers = {name: copies.get(each, each) for name, each in part._buffers.items()}
            for name, each in {**children, **own, **buffers, "_former_parameters": own}.items():
                setattr(replica, name, each)
            continue
        replica._modules.update(children)
        replica._parameters.update({name: None for name, parameter in parameters if parameter is None})
        for held in (replica._buffers, vars(replica)) if has_others else ():
            tensors = {name: each for name, each in held.items() if type(each) is torch.Tensor}
            held.update({name: copies[each] for name, each in tensors.items() if each in copies})
        (replica._parameters if has_parameters else vars(replica)).update(own)
        vars(replica).update(_former_parameters=own)
    return replicas[state.parts[0]]


def copy_part(part: Any) -> Any:
    """What Module._replicate_for_data_parallel gives, without Module.__setattr__, which takes most of its time."""
    kind: Any = type(part)
    plain: Any = torch.nn.Module
    own_ways = kind._replicate_for_data_parallel, kind.__setattr__
    if own_ways != (plain._replicate_for_data_parallel, plain.__setattr__):
        return part._replicate_for_data_parallel()
    replica = part.__new__(kind)
    own = {"_buffers": part._buffers.copy(), "_modules": part._modules.copy(), "_parameters": {}}
    object.__setattr__(replica, "__dict__", {**vars(part), **own, "_is_replica": True})
    return replica


def buckets_of(parameters: Sequence[torch.Tensor]) -> List[List[torch.Tensor]]:
    """As DistributedDataParallel lays them: the last parameters are the first to have gradients."""
    last_first = parameters[::-1]
    assign: Any = dist._compute_bucket_assignment_by_size  # type: ignore[attr-defined]
    places = assign(last_first, [2**20, 25 * 2**20])[0] if last_first else []
    return [[last_first[place] for place in bucket] for bucket in places]


def run_at_once(node: Any) -> None:
    """Backward comes to a node as soon as its gradients are there, and not, as to what was made first, at the end."""
    if hasattr(node, "_set_sequence_nr"):  # since torch 2.1
        node._set_sequence_nr(2**62)


def as_in_a_thread() -> ContextManager[Any]:
    """Around replicas' forwards: what is around the model and does not reach DataParallel's replicas, in their threads.

    That is inference mode, and hooks for saved tensors, as a checkpoint's: nothing of a forward runs again in backward.
    """
    around = ExitStack()
    if torch.is_inference_mode_enabled():
        around.enter_context(torch.inference_mode(False))
        around.enter_context(torch.no_grad())
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("there are some"):
            return around
    except RuntimeError:
        around.enter_context(
            torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        )
        return around


def run_alone(module: torch.nn.Module, inputs: Any, kwargs: Any) -> Any:
    """A forward on one device, to which DataParallel moves what it is given."""
    device = next((parameter.device for parameter in module.parameters()), None)
    inputs, kwargs = map_tensors(lambda tensor: tensor.to(device or tensor.device), (inputs, kwargs))
    return module(*inputs, **kwargs)
