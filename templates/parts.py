"""Large outputs stay in parts: each rank holds the rows that it computed, and computes the loss of those."""

import functools
import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from .broadcast import Rank
from .overlapping import WholeBatchParallel
from .ranks import together
from .rows import gather_rows
from .sums import CopyToRanks, SumOverRanks
from .trees import map_tensors, tensors_of

LARGE = 2**20  # bytes; less is gathered at once
NARROW = (torch.float16, torch.bfloat16)
F: Any = torch.nn.functional


class Parts(torch.Tensor):
    """A tensor of which each rank holds its own rows: `rows`, of as many on each rank as `counts` says.

    What takes each row by itself is computed of the own rows, and is in parts again. Sums and losses are added over the
    ranks. For anything else, the rows of all ranks are gathered on each: the tensor is whole from then on.
    """

    rows: torch.Tensor
    counts: Sequence[int]
    node: Any = None  # of autograd, by which this was made of its rows
    everything: Optional[torch.Tensor] = None  # once it is whole
    was_used = False  # in parts
    base: Any = None  # the parts whose memory it shares: they are whole together
    of_base: Any = None  # makes it of the whole base

    @staticmethod
    def of(rows: torch.Tensor, counts: Sequence[int]) -> "Parts":
        new: Parts = HoldRows.apply(rows, counts)
        new.rows, new.counts, new.node = rows, counts, new.grad_fn
        return new

    def whole(self) -> torch.Tensor:
        """The rows of all ranks, which ask for them at once."""
        if self.everything is None:
            if not together():
                raise RuntimeError(
                    "rank 0 alone wants an output that lies in parts on all ranks: clone it before"
                )
            with torch.set_grad_enabled(self.base is None or self.requires_grad):  # as the view was made
                self.everything = JoinParts.apply(self) if self.base is None else self.of_base()
        return self.everything

    def is_in_parts(self) -> bool:
        """Not after it is whole, nor if an autograd Function of the script's made it: its rows are not in the graph."""
        is_whole = self.everything is not None or self.base is not None and not self.base.is_in_parts()
        return not is_whole and self.grad_fn is self.node

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        parts = [each for each in (*args, *kwargs.values()) if isinstance(each, Parts)]
        with torch._C.DisableTorchFunction():
            if function in ABOUT_ALL_ROWS:
                return function(*args, **kwargs)
            if parts and all(each.is_in_parts() for each in parts) and not has_learned((args, kwargs)):
                compute = BY_ROWS.get(function)
                is_first = args[:1] and args[0] is parts[0] or compute in (by_element, loss)
                answer = compute(function, parts[0], args, kwargs) if compute and is_first else NotImplemented
                if answer is not NotImplemented:
                    bind_views(answer, parts[0], function, args, kwargs)
                    for each in parts:
                        each.was_used = True
                    return answer
        if function is torch.autograd.grad:
            return gradients_of_rows(*args, **kwargs)
        refuse_late(function, parts)
        args, kwargs = map_tensors(make_whole, (args, kwargs))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What torch's C++ code asks for, below autograd."""
        args, kwargs = map_tensors(make_whole, (args, kwargs or {}))
        return function(*args, **kwargs)


def has_learned(tree: Any) -> bool:
    """Whether something beside parts wants a gradient: each rank has it whole, so it is to come of all rows."""
    beside = (each for each in tensors_of(tree) if not isinstance(each, Parts))
    return torch.is_grad_enabled() and any(each.requires_grad for each in beside)


def make_whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.whole() if isinstance(tensor, Parts) else tensor


def bind_views(answer: Any, like: Parts, function: Any, args: Any, kwargs: Any) -> None:
    """What is written into a view is in the tensor that it is of: views in parts are made of the whole one."""

    def made_of_whole(place: int) -> Any:
        given, options = map_tensors(make_whole, (args, kwargs))
        return [*tensors_of(function(*given, **options))][place]

    for place, each in enumerate(tensors_of(answer)):
        if isinstance(each, Parts) and memory_of(each.rows) == memory_of(like.rows):
            each.base, each.of_base = like, functools.partial(made_of_whole, place)


def refuse_late(function: Any, parts: List[Parts]) -> None:
    """Refuse to hang on a tensor what its uses in parts would pass by."""
    name = function.__name__
    of_gradients = name in ("register_hook", "retain_grad", "requires_grad_", "grad")
    if of_gradients and any(each.was_used for each in parts):
        raise RuntimeError(f"{name} of an output that lies in parts on all ranks: clone it before")


def gradients_of_rows(outputs: Any, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    """torch.autograd.grad: the gradient of what lies in parts is that of each rank's rows, and lies in parts."""
    outputs, options = map_tensors(make_whole, (outputs, options))
    parts = [each if isinstance(each, Parts) and each.is_in_parts() else None for each in inputs]
    whole = [each for each, own in zip(inputs, parts) if isinstance(each, Parts) and own is None]
    refuse_late(torch.autograd.grad, whole)
    sources = [make_whole(each) if own is None else own.rows for each, own in zip(inputs, parts)]
    gradients = torch.autograd.grad(outputs, sources, **options)
    return tuple(g if own is None or g is None else in_parts(g, own) for g, own in zip(gradients, parts))


class HoldRows(torch.autograd.Function):
    """A rank's rows to the tensor of all, which takes no memory, and in which autograd finds the way back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, counts: Sequence[int]) -> Any:
        ctx.counts = counts
        size = (sum(counts), *rows.shape[1:])
        new: Any = torch.Tensor._make_wrapper_subclass(Parts, size, dtype=rows.dtype, device=rows.device)
        return new

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if isinstance(gradient, Parts) and gradient.is_in_parts():
            return gradient.rows, None
        (whole,) = CopyToRanks.apply(None, make_whole(gradient))  # for gradients of gradients
        return whole.split(ctx.counts)[dist.get_rank()], None


class JoinParts(torch.autograd.Function):
    """The rows of all ranks. All go on with them alike."""

    @staticmethod
    def forward(ctx: Any, parts: Any) -> torch.Tensor:
        return gather_rows(parts.rows.detach(), parts.counts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class WholeBatchInParts(WholeBatchParallel):
    """A model whose outputs may be large: pixels, or tokens and all words. They stay in parts."""

    stands_for_data_parallel = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Rank.make_whole = make_all_whole

    def join_rows(self, rows: torch.Tensor, counts: Sequence[int], dim: int) -> torch.Tensor:
        size = sum(counts) * rows[:1].numel() * rows.element_size()
        if dim != 0 or size < LARGE or 0 in counts or type(rows) is not torch.Tensor:
            return super().join_rows(rows, counts, dim)
        return Parts.of(rows, counts)


def make_all_whole(tree: Any) -> Any:
    has_parts = any(isinstance(each, Parts) for each in tensors_of(tree))
    return map_tensors(make_whole, tree) if has_parts else tree


# What can be computed of parts: each takes a function, one of its arguments that is in parts (the first, but for
# by_element and loss), and all of them. It gives NotImplemented where it cannot tell that rows are taken one by one.


def by_element(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """Functions of elements, and of those that stand beside them in other tensors."""
    own = [own_rows(each, like) for each in (*args, *kwargs.values())]
    is_in_place = "out" in kwargs or any(each is True for each in own)
    if is_in_place or any(each is NotImplemented for each in own):
        return NotImplemented
    answer = function(*own[: len(args)], **dict(zip(kwargs, own[len(args) :])))
    return in_parts(answer, like) if isinstance(answer, torch.Tensor) else NotImplemented  # where(x): places


def own_rows(thing: Any, like: Parts) -> Any:
    """This rank's rows of what stands beside a tensor in parts, or all of it where its rows are of other dimensions."""
    if not isinstance(thing, torch.Tensor):
        return thing
    if isinstance(thing, Parts):
        return thing.rows if thing.counts == like.counts and thing.dim() == like.dim() else NotImplemented
    if thing.dim() == like.dim() and len(thing) == len(like):
        return thing.split(like.counts)[dist.get_rank()]
    is_broadcast = thing.dim() < like.dim() or thing.dim() == like.dim() and len(thing) == 1
    return thing if is_broadcast else NotImplemented


def in_parts(result: Any, like: Parts, counts: Optional[Sequence[int]] = None) -> Any:
    """What was computed of this rank's rows; torch has types of its own for several results."""
    if not isinstance(result, torch.Tensor):
        return type(result)([in_parts(each, like, counts) for each in result])
    return Parts.of(result, counts or like.counts)


def memory_of(tensor: Any) -> int:
    is_old = not hasattr(tensor, "untyped_storage")  # until torch 2
    return int((tensor.storage() if is_old else tensor.untyped_storage()).data_ptr())


def along(place: int, default: Any = None, new_dims: int = 0) -> Callable[..., Any]:
    """Functions along dimensions, which are the argument at a place or `dim`, unless the rows' is one of them."""

    def compute(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
        dims = dims_of(args, kwargs, place, default)
        if not dims or any(each % (like.dim() + new_dims) == 0 for each in dims):
            return NotImplemented
        return in_parts(function(like.rows, *args[1:], **kwargs), like)

    return compute


def dims_of(args: Any, kwargs: Any, place: int, default: Any = None) -> List[int]:
    """The dimensions that are given; none if something else is."""
    given = kwargs.get("dim", args[place] if len(args) > place else default)
    dims = [*given] if isinstance(given, (tuple, list)) else [given]
    return dims if all(type(each) is int for each in dims) else []


def add_up(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """sum and mean: of everything, or along dimensions."""
    dims = dims_of(args, kwargs, 1, [*range(like.dim())])
    if not dims or {*kwargs} - {"dim", "keepdim"}:
        return NotImplemented
    if all(each % like.dim() for each in dims):
        return in_parts(function(like.rows, *args[1:], **kwargs), like)
    keepdim = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
    mean_of = like.numel() if function.__name__ == "mean" else 0
    return over_ranks(like.rows.sum(dims, keepdim), mean_of)


def over_ranks(own: torch.Tensor, mean_of: int = 0) -> Any:
    """The sum of what each rank has, or the mean of so many elements."""
    if own.dtype in NARROW:  # torch adds wider numbers for a mean
        return NotImplemented
    (added,) = SumOverRanks.apply(own)
    return added / (mean_of // added.numel()) if mean_of else added


def by_shape(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """view, reshape and flatten, where each rank's elements are whole rows of the result, too."""
    if any(isinstance(each, (torch.Tensor, torch.dtype)) for each in args[1:]):
        return NotImplemented
    shape = function(torch.empty(like.shape, device="meta"), *args[1:], **kwargs).shape
    elements = [count * (like.numel() // len(like)) for count in like.counts]
    new_row = shape[1:].numel()
    if not shape or any(each % new_row for each in elements):
        return NotImplemented
    counts = [each // new_row for each in elements]
    own = (counts[dist.get_rank()], *shape[1:])
    is_view = function is torch.Tensor.view
    return in_parts(like.rows.view(own) if is_view else like.rows.reshape(own), like, counts)


def by_index(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """`x[:, ...]` and `x[..., i]`: of each row the same."""
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    is_plain = all(type(each) in (int, slice) for each in index[1:])
    starts_with_all = index and (type(index[0]) is slice and index[0] == slice(None) or index[0] is Ellipsis)
    if not is_plain or not starts_with_all or len(index) > like.dim():
        return NotImplemented
    return in_parts(like.rows[index], like)


def swap(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """transpose and permute, where rows stay first."""
    dims = args[1] if len(args) == 2 and isinstance(args[1], (tuple, list)) else args[1:]
    places = [each % like.dim() for each in dims if type(each) is int]
    stays = places[:1] == [0] if function.__name__ == "permute" else 0 not in places
    if kwargs or not places or len(places) != len(dims) or not stays:
        return NotImplemented
    return in_parts(function(like.rows, *args[1:]), like)


def resize(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    return in_parts(function(like.rows, *args[1:], **kwargs), like)


def loss(function: Any, like: Parts, args: Any, kwargs: Any) -> Any:
    """A loss of torch.nn.functional: the own rows' losses, added over the ranks, and divided as torch does."""
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    names: Dict[str, Any] = given.arguments
    target, weight, of_classes = names["target"], names.get("weight"), function in OF_CLASSES
    if names["size_average"] is not None or names["reduce"] is not None or names["input"] is not like:
        return NotImplemented
    if isinstance(target, Parts) or weight is not None and not of_classes or of_classes and like.dim() < 2:
        return NotImplemented
    if target.shape != like.shape and not (of_classes and target.shape == like.shape[:1] + like.shape[2:]):
        return NotImplemented
    own = {name: own_rows(each, like) for name, each in names.items()}
    if any(each is NotImplemented for each in own.values()):
        return NotImplemented
    own.update(input=like.rows, target=target.split(like.counts)[dist.get_rank()])
    if names["reduction"] == "none":
        return in_parts(function(**own), like)
    added = over_ranks(function(**{**own, "reduction": "sum"}))
    if added is NotImplemented or names["reduction"] == "sum":
        return added
    if names["reduction"] == "batchmean":
        return added / len(target)
    return added / (number_of_losses(target, weight, names) if of_classes else target.numel())


def number_of_losses(target: torch.Tensor, weight: Any, names: Dict[str, Any]) -> Any:
    """By what a mean over classes divides: the number of targets, or their weights, without those that are ignored."""
    if target.is_floating_point():  # a probability of each class
        return target.numel() // target.shape[1]
    counts = target != names["ignore_index"]
    if weight is None:
        return counts.sum()
    return (weight[target.where(counts, torch.zeros_like(target))] * counts).sum()


T = torch.Tensor


def named(names: str) -> List[Any]:
    """Functions of torch, of tensors and of torch.nn.functional by these names."""
    functions = [getattr(place, name, None) for name in names.split() for place in (torch, T, F)]
    return [each for each in functions if each is not None]


ABOUT_ALL_ROWS = {
    *named("size dim numel nelement ndimension __len__ __hash__ is_floating_point is_complex get_device"),
    *(getattr(T, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda")),
    *(getattr(T, name).__get__ for name in ("requires_grad", "grad_fn", "is_leaf")),
}
OF_CLASSES = {F.cross_entropy, F.nll_loss}
LOSSES = {
    *(*OF_CLASSES, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.kl_div),
    *(F.binary_cross_entropy, F.binary_cross_entropy_with_logits),
}
OF_ELEMENTS = """
    add sub mul div true_divide eq ne lt le gt ge maximum minimum where masked_fill
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__
    __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __neg__ __pow__ __and__ __or__
    neg abs exp log sqrt square pow clamp relu sigmoid tanh gelu logsigmoid
    float double half long bool type_as contiguous clone detach round
"""
BY_ROWS: Dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(named(OF_ELEMENTS), by_element),
    **dict.fromkeys(named("softmax log_softmax logsumexp squeeze argmax argmin max min"), along(1)),
    **dict.fromkeys(named("chunk split normalize"), along(2)),
    **dict.fromkeys(named("topk"), along(2, -1)),
    **dict.fromkeys(named("unsqueeze"), along(1, new_dims=1)),
    **dict.fromkeys(named("sum mean"), add_up),
    **dict.fromkeys(named("view reshape flatten"), by_shape),
    **dict.fromkeys(named("transpose permute"), swap),
    **dict.fromkeys(named("__getitem__"), by_index),
    **dict.fromkeys(named("interpolate upsample"), resize),
    **dict.fromkeys(LOSSES, loss),
}
