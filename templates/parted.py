"""A tensor that the script sees whole, and of which each rank holds its rows.

The wrapped forward gives such a tensor where its output is large, and loaders give batches so. What torch computes row
by row runs on the own rows; what adds up rows runs on the own rows and adds up over the ranks; anything else gets the
whole tensor, and runs as it was written. Every rank runs the same script, so all ranks meet in each of these calls.

It is a wrapper without memory of its own: autograd sees the whole shape, and what reaches for the numbers comes by
RowsOnRanks.__torch_dispatch__, below autograd. (torch's DTensor is built so, too; it raises where it knows no rule.)
"""

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch

from .arguments import map_tensors, rank_sizes, tensors_in
from .compiled import uncompiled
from .loaded import LoadedOrigin, LoadedRows, is_large
from .process import own_rank, world_size
from .rows import RowsMade, concatenate_ranks, from_all_ranks, own_slice


class RowsOnRanks(torch.Tensor):
    """A whole tensor, parted among the ranks along one dimension: rank r holds `sizes[r]` of its rows."""

    held: torch.Tensor  # this rank's rows, times what the family says
    sizes: tuple[int, ...]
    part_dim: int  # the dimension along which the rows lie
    kept: "torch.Tensor | None"  # the whole, once something has asked for it
    kept_at: int  # the changes that there were then
    family: "RowsFamily"
    origin: "LoadedOrigin | None"  # of rows of a batch

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(
        own: torch.Tensor,
        sizes: Sequence[int],
        dim: int = 0,
        family: "RowsFamily | None" = None,
        shape: "Sequence[int] | None" = None,
        strides: "Sequence[int] | None" = None,
    ) -> "RowsOnRanks":
        """The whole tensor of which `own` are this rank's rows; outside of autograd."""
        if shape is None or strides is None:
            own = (
                own.contiguous()
            )  # what torch does next may depend on strides: they are the same on all ranks
            shape = [*own.shape]
            shape[dim] = sum(sizes)
            strides = contiguous_strides(shape)
        rows: RowsOnRanks = torch.Tensor._make_wrapper_subclass(
            RowsOnRanks,
            shape,
            strides=strides,
            dtype=own.dtype,
            layout=own.layout,
            device=own.device,
            requires_grad=False,
        )
        rows.held, rows.sizes, rows.part_dim = own, tuple(sizes), dim
        rows.kept, rows.kept_at, rows.origin = None, -1, None
        rows.family = RowsFamily() if family is None else family
        rows.family.add(rows)
        return rows

    @property
    def own(self) -> torch.Tensor:
        """This rank's rows."""
        if self.family.times != 1:
            have_own_memory(self.family)
        return self.held

    @classmethod
    @uncompiled
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: "dict[str, Any] | None" = None
    ) -> Any:
        return run_on_rows(func, args, kwargs or {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if not keeps_rows(key, self.part_dim, self.dim()):
            become_whole(self)
        else:
            about_to_change(self)
        super().__setitem__(key, value)

    def tolist(self) -> Any:
        return plain(self).tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        return as_array(self, lambda whole: whole.numpy(*args, **kwargs))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return as_array(self, lambda whole: whole.__array__(*args, **kwargs))

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return own_whole(self).__dlpack__(*args, **kwargs)

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return repr(plain(self))

    def __format__(self, form: str) -> str:
        return format(plain(self), form)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(self).detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: "dict[int, Any]") -> torch.Tensor:
        twin: torch.Tensor = plain(self).__deepcopy__(memo)
        return twin

    def data_ptr(self) -> int:
        return own_whole(self).data_ptr()

    def untyped_storage(self) -> Any:
        return own_whole(self).untyped_storage()


class RowsFamily:
    """RowsOnRanks that share their memory: what changes one of them in place changes all."""

    def __init__(self) -> None:
        self.lent = False  # the memory is another's, who may need it as it is: the wrapped model's
        self.times = 1.0  # the memory holds the numbers times this: see GradientFactor
        self.changes = 0
        self.base: LoadedOrigin | None = None  # of the memory, of which the members are views
        self.members: list[weakref.ref[RowsOnRanks]] = []

    def add(self, rows: RowsOnRanks) -> None:
        self.members = [*(member for member in self.members if member() is not None), weakref.ref(rows)]

    def others(self, rows: RowsOnRanks) -> list[RowsOnRanks]:
        """The living members but for one."""
        living = (member() for member in self.members)
        return [member for member in living if member is not None and member is not rows]


def contiguous_strides(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 1, 0, -1):
        strides[dim - 1] = strides[dim] * max(shape[dim], 1)
    return strides


def join_parts(own: torch.Tensor, sizes: Sequence[int], dim: int) -> torch.Tensor:
    """All ranks' rows as one tensor: whole on each rank if it is small, parted as they are if it is large."""
    if dim != 0 or own.layout != torch.strided or not is_large(own, sizes, dim):
        return concatenate_ranks(own, sizes, dim)
    RowsMade.thread = threading.get_ident()
    rows = RowsOnRanks.of(own.detach(), sizes, dim)
    rows.family.lent = True
    return rows


def part_whole(whole: Any, which: "Sequence[bool]") -> Any:
    """These tensors of a batch that all ranks have, as RowsOnRanks that need no network (partable_in(batch))."""
    if not any(which):
        return whole
    marks = iter(which)
    return map_tensors(whole, lambda tensor: rows_of_whole(tensor) if next(marks) else tensor)


def partable_in(whole: Any) -> list[bool]:
    """For each tensor of a batch whether its rows are handled apart: it is large, and nothing else shares its memory.

    In tuples, lists and dicts; any other batch stays whole. One rank says it for all: a view of a larger tensor may
    lie in other memory on the others.
    """
    leaves: list[Any] = []
    if not collect_leaves(whole, leaves):
        return []
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    memories = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [
        memories.count(memory) == 1 and is_partable(tensor)
        for tensor, memory in zip(tensors, memories, strict=True)
    ]


def collect_leaves(value: Any, leaves: list[Any]) -> bool:
    """Whether all that is in a batch is known: tensors, which go to the list, numbers, texts, and what holds them."""
    if type(value) is dict:
        return all(collect_leaves(each, leaves) for each in value.values())
    if type(value) in (tuple, list):
        return all(collect_leaves(each, leaves) for each in value)
    leaves.append(value)
    strided = type(value) is torch.Tensor and value.layout is torch.strided
    return strided or isinstance(value, (str, bytes, int, float, complex, type(None)))


def rows_of_whole(whole: torch.Tensor) -> torch.Tensor:
    """What all ranks have as a whole, as RowsOnRanks; its memory stays as it is."""
    sizes = rank_sizes(whole, world_size(), 0)
    return rows_of_loaded(LoadedRows(own_slice(whole, sizes), sizes, whole))


def rows_of_loaded(loaded: LoadedRows) -> RowsOnRanks:
    """A tensor of a batch, as the script sees it; its memory stays as it is."""
    rows = RowsOnRanks.of(loaded.own, loaded.sizes)
    rows.origin = rows.family.base = LoadedOrigin(loaded)
    rows.family.lent = True
    return rows


def is_partable(whole: torch.Tensor) -> bool:
    """Whether it pays, and is possible, to handle a rank's rows of it alone."""
    plain_kind = not whole.requires_grad and not whole.is_quantized and whole.dim() > 0
    return plain_kind and is_large(whole, whole.shape[:1], 0) and whole.is_contiguous()


def own_numbers(tensor: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> torch.Tensor:
    """This rank's rows of a whole tensor, below autograd: a view."""
    if is_parted(tensor) and (tensor.sizes, tensor.part_dim) == (tuple(sizes), dim):
        return tensor.own
    return own_slice(plain_numbers(tensor), sizes, dim)


def own_times(gradient: torch.Tensor, sizes: Sequence[int], dim: int, factor: float) -> torch.Tensor:
    """This rank's rows of a whole gradient times a factor, below autograd; where they are there already, their memory.

    That is not to be changed: the gradient has it, too.
    """
    layout = tuple(sizes), dim, factor
    if is_parted(gradient) and (gradient.sizes, gradient.part_dim, gradient.family.times) == layout:
        gradient.family.lent = True
        return gradient.held.data
    return own_numbers(gradient, sizes, dim) * factor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The whole as a plain tensor of this rank; autograd goes on through it."""
    return AsPlain.apply(tensor) if isinstance(tensor, RowsOnRanks) else tensor


class AsPlain(torch.autograd.Function):
    """RowsOnRanks -> the same numbers, all of them on each rank; the gradient is the same on all ranks, too."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return plain_numbers(tensor).clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def with_wholes(value: Any) -> Any:
    """A value with all rows in it, before one rank goes on alone; also in tuples, lists and dicts."""
    return map_tensors(value, plain) if holds_rows(value) else value


def holds_rows(value: Any) -> bool:
    """Whether there are RowsOnRanks in it."""
    return any(isinstance(tensor, RowsOnRanks) for tensor in tensors_in(value))


def is_parted(value: Any) -> TypeGuard[RowsOnRanks]:
    """Whether this tensor's rows lie on several ranks."""
    return isinstance(value, RowsOnRanks) and value.held is not value.kept


def plain_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The whole, below autograd. It is kept, and is not to be changed."""
    if not isinstance(tensor, RowsOnRanks):
        return tensor
    if not is_parted(tensor):
        return tensor.own
    if tensor.kept is None or tensor.kept_at != tensor.family.changes:
        tensor.kept, tensor.kept_at = join_own(tensor), tensor.family.changes
    return tensor.kept


def join_own(rows: RowsOnRanks) -> torch.Tensor:
    """All ranks' rows, in the order of memory that the whole has."""
    if rows.origin is not None and not rows.family.changes:
        return rows.origin.make_whole()
    if rows.held.is_meta:  # torch 2.6 asks so for the shape of a sum with zeros that take no memory
        return torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    whole = from_all_ranks(rows.own, rows.sizes, rows.part_dim)
    if whole.stride() == rows.stride():
        return whole
    placed = torch.empty_strided(rows.shape, rows.stride(), dtype=whole.dtype, device=whole.device)
    return placed.copy_(whole)


CROSSES = (
    "A large output of the wrapped model, or a view of it, is changed in place, where the change would not reach all "
    "that shares its memory or crosses the ranks' rows. Change a copy: tensor.clone()."
)


def become_whole(rows: RowsOnRanks) -> None:
    """Hold the whole from now on: it is going to be changed in a way that is not row by row."""
    if not is_parted(rows):
        return
    family, known = rows.family, known_members(rows)
    if known is not None and family.base is not None:
        memory = family.base.make_whole().clone()
        for tensor, origin in known:
            tensor.held = tensor.kept = origin.behind(family.base, memory)
            tensor.origin = None
    elif family.others(rows):
        raise RuntimeError(CROSSES)
    else:
        rows.held = rows.kept = plain_numbers(rows).clone()
        rows.origin = None
    family.lent = False


def known_members(rows: RowsOnRanks) -> "list[tuple[RowsOnRanks, LoadedOrigin]] | None":
    """All that share the memory, with their origins; None if not all of them can be made of the whole anew."""
    known = [
        (member, member.origin) for member in (rows, *rows.family.others(rows)) if member.origin is not None
    ]
    is_all = len(known) == 1 + len(rows.family.others(rows))
    return known if is_all and rows.family.base is not None and not rows.family.changes else None


def own_whole(rows: RowsOnRanks) -> torch.Tensor:
    """The whole, in memory that is this tensor's from now on: what is written there past torch is written into it."""
    become_whole(rows)
    return rows.own.detach()


def as_array(rows: RowsOnRanks, convert: Callable[[torch.Tensor], Any]) -> Any:
    """numpy's view of the whole; it is read-only where writing into it would not reach all that shares the memory."""
    if rows.requires_grad or not rows.family.others(rows) or known_members(rows) is not None:
        return convert(plain(rows) if rows.requires_grad else own_whole(rows))
    array = convert(plain(rows))
    array.flags.writeable = False
    return array


def keeps_rows(key: Any, dim: int, dims: int) -> bool:
    """Whether an index takes each row as a whole: only plain slices and numbers, and all of the rows' dimension."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(
        not isinstance(key, (int, slice)) and key is not Ellipsis or isinstance(key, bool) for key in keys
    ):
        return False
    if any(key is Ellipsis for key in keys):
        place = next(i for i, key in enumerate(keys) if key is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (dims - len(keys) + 1)
    return len(keys) <= dim or keys[dim] == slice(None)


# How a function of torch is run on rows: (function, arguments by their names, args, kwargs) -> result, or
# NotImplemented where this way does not hold: then it gets the whole.
Way = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def run_on_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch, called with RowsOnRanks among its arguments."""
    parted = [rows for value in (*args, *kwargs.values()) for rows in rows_in(value) if is_parted(rows)]
    if all(map(has_come, parted)):
        for rows in parted:
            become_whole(rows)
        return run_on_whole(func, args, kwargs)
    way = WAYS.get(func.name().removeprefix("aten::"))
    if way is None and is_pointwise(func):
        way = map_elements
    if way is None and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):
        return func.decompose(*args, **kwargs)  # made of simpler functions, which come by here in turn
    result = NotImplemented if way is None else way(func, args, kwargs)
    return run_on_whole(func, args, kwargs) if result is NotImplemented else result


def has_come(rows: RowsOnRanks) -> bool:
    """Whether the whole is here already, and so small that its rows need not be looked at alone."""
    return rows.origin is not None and rows.origin.has_come and known_members(rows) is not None


def run_on_whole(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function as it was written, on all rows; what it changes holds all rows from then on."""
    given = bound(func, args, kwargs)
    changed = [rows for argument, value in given if writes(argument) for rows in rows_in(value)]
    for rows in changed:
        become_whole(rows)
        about_to_change(rows)
    views_of = [value for argument, value in given if argument.alias_info is not None and is_parted(value)]
    result = func(*map_tensors(args, plain_numbers), **map_tensors(kwargs, plain_numbers))
    if views_of:  # a view of the whole, by which nobody can write into the rows of the other ranks
        views = [
            whole_view(tensor.clone(), views_of[0])
            for tensor in (result if isinstance(result, list) else [result])
        ]
        return views if isinstance(result, list) else views[0]
    return changed[0] if changed and gives_what_it_changed(func) else result


def gives_what_it_changed(func: Any) -> bool:
    """Whether a function returns the argument that it changes (x.add_), and not something new beside it."""
    given = func._schema.returns
    return len(given) == 1 and given[0].alias_info is not None and bool(given[0].alias_info.is_write)


def whole_view(tensor: torch.Tensor, rows: RowsOnRanks) -> torch.Tensor:
    """A whole that stands for a view of rows: neither may be changed while both are there."""
    view = RowsOnRanks.of(
        tensor, (tensor.shape[0] if tensor.dim() else 1,), 0, rows.family, tensor.shape, tensor.stride()
    )
    view.kept = tensor
    return view


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The arguments of a call beside what the function's schema says of them."""
    schema = func._schema.arguments
    return [
        *zip(schema, args, strict=False),
        *((argument, kwargs[argument.name]) for argument in schema if argument.name in kwargs),
    ]


def named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, with what they are by default."""
    values = {
        argument.name: argument.default_value
        for argument in func._schema.arguments
        if argument.has_default_value()
    }
    return values | {argument.name: value for argument, value in bound(func, args, kwargs)}


def writes(argument: Any) -> bool:
    """Whether a function changes this argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def rows_in(value: Any) -> list[RowsOnRanks]:
    """The RowsOnRanks in an argument."""
    return [
        item
        for item in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(item, RowsOnRanks)
    ]


def about_to_change(rows: RowsOnRanks) -> None:
    """Note a change in place; it must reach all that shares the memory."""
    if any(is_parted(other) != is_parted(rows) for other in rows.family.others(rows)):
        raise RuntimeError(CROSSES)
    have_own_memory(rows.family)
    rows.family.changes += 1


def have_own_memory(family: RowsFamily) -> None:
    """Go on with a copy of memory that is lent, or holds other numbers: all who share it, on the same one."""
    if not family.lent and family.times == 1:
        return
    members = [member for member in (each() for each in family.members) if member is not None]
    spans = [(member.held.storage_offset(), span_of(member.held)) for member in members]
    first, last = min(start for start, _ in spans), max(start + size for start, size in spans)
    memory = members[0].held.as_strided([last - first], [1], first)
    copied = memory.clone() if family.times == 1 else memory / family.times
    for member in members:
        member.held = copied.as_strided(
            member.held.shape, member.held.stride(), member.held.storage_offset() - first
        )
    family.lent, family.times = False, 1.0


def span_of(tensor: torch.Tensor) -> int:
    """How many elements of memory a tensor reaches over."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0


@functools.cache
def is_pointwise(func: Any) -> bool:
    """Whether torch says that a function works element by element; of one that works in place, if its twin does."""
    if {torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded} & set(func.tags):
        return False  # equal, which answers for all; rrelu, which may draw
    if torch.Tag.pointwise in func.tags:
        return True
    name, overload = func._schema.name, func._schema.overload_name or "default"
    packet = getattr(torch.ops.aten, name.removeprefix("aten::")[:-1], None) if name.endswith("_") else None
    twin = getattr(packet, overload, None)
    return twin is not None and torch.Tag.pointwise in twin.tags


def map_elements(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each element: of rows that lie alike, beside what has one row, or all of them, or none."""
    given = [*args, *kwargs.values()]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    layouts = {(tensor.sizes, tensor.dim() - tensor.part_dim) for tensor in tensors if is_parted(tensor)}
    if len(layouts) != 1 or any(isinstance(value, (list, tuple)) and rows_in(value) for value in given):
        return NotImplemented
    sizes, place = layouts.pop()  # the rows' dimension, counted from the last
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if any(not is_parted(tensor) for tensor in changed):
        return NotImplemented
    own = [own_beside(value, sizes, place) for value in given]
    if any(part is None is not value for part, value in zip(own, given, strict=True)):
        return NotImplemented  # one row in all, beside more
    for rows in changed:
        about_to_change(rows)
    if changed:
        own = [own_beside(value, sizes, place) for value in given]  # in memory that may be changed
    result = func(*own[: len(args)], **dict(zip(kwargs, own[len(args) :], strict=True)))
    if changed:
        return changed[0]
    first = max(filter(is_parted, tensors), key=lambda tensor: tensor.dim())
    result = parted_like(result, first, max(tensor.dim() for tensor in tensors) - place)
    return as_the_whole(result, func, args, kwargs) if len(tensors) == 1 and tensors[0] is args[0] else result


def parted_like(result: Any, rows: RowsOnRanks, dim: int) -> Any:
    """What was computed on the own rows, as RowsOnRanks; also in a tuple. What is no tensor stays."""
    if isinstance(result, torch.Tensor):
        return in_memory_as(result, rows, dim)
    if not isinstance(result, (list, tuple)):
        return result
    return type(result)(parted_like(tensor, rows, dim) for tensor in result)


def in_memory_as(result: torch.Tensor, rows: RowsOnRanks, dim: int) -> RowsOnRanks:
    """Rows whose dimensions lie in memory as those of others, of their shape, do: random numbers come in that order."""
    shape = [*result.shape]
    shape[dim] = sum(rows.sizes)
    if rows.is_contiguous() or shape != [*rows.shape]:
        return RowsOnRanks.of(result, rows.sizes, dim)
    strides = torch.empty_like(torch.empty_strided(shape, rows.stride(), device="meta")).stride()
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    back = sorted(range(len(shape)), key=order.__getitem__)
    own = result.permute(order).contiguous().permute(back)
    return RowsOnRanks.of(own, rows.sizes, dim, None, shape, strides)


def map_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each row of their first argument, whatever its shape."""
    rows = args[0]
    if not is_parted(rows) or any(isinstance(value, torch.Tensor) for value in (*args[1:], *kwargs.values())):
        return NotImplemented
    result = func(rows.own, *args[1:], **kwargs)
    if kwargs.get("memory_format", torch.preserve_format) is not torch.preserve_format:
        return RowsOnRanks.of(result, rows.sizes, rows.part_dim)
    return parted_like(result, rows, rows.part_dim)


def move_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To another device or dtype: of a batch that lies in every rank's memory, the rest goes when it is asked for."""
    return as_the_whole(map_rows(func, args, kwargs), func, args, kwargs)


def as_the_whole(result: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What was made of rows, with the origin by which the same can be made of the whole."""
    rows = args[0]
    if isinstance(result, RowsOnRanks) and rows.origin is not None and not rows.family.changes:
        result.origin = rows.origin.then(lambda whole: func(whole, *args[1:], **kwargs))
        if result.family is not rows.family:
            result.family.base = result.origin
    return result


def make_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_zeros and its relatives: rows of a shape of their own, of as many rows where that is possible."""
    rows, shape = args[0], list(args[1])
    dim, total = rows.part_dim, sum(rows.sizes)
    if len(shape) <= dim or shape[dim] != total or total < 2:
        return func(rows.own, *args[1:], **kwargs)
    shape[dim] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:], **kwargs), rows.sizes, dim)


def make_plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_empty_strided: autograd makes gradients of views so, and writes into them by as_strided."""
    return func(args[0].own, *args[1:], **kwargs)


def map_along_dims(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions along dimensions: of each row alone, if the rows' own is not among them."""
    given = named(func, args, kwargs)
    rows = next((value for value in (*args, *kwargs.values()) if is_parted(value)), None)
    dims = given["dim"] if "dim" in given else given["dims"]
    if rows is None or not isinstance(args[0], torch.Tensor) or dims is None or rows.dim() == 0:
        return NotImplemented
    dims = [index % rows.dim() for index in (dims if isinstance(dims, (list, tuple)) else [dims])]
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    own = {id(tensor): own_alike(tensor, rows) if tensor.dim() == rows.dim() else None for tensor in tensors}
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if not dims or rows.part_dim in dims or None in own.values() or not all(map(is_parted, changed)):
        return NotImplemented
    for tensor in changed:
        about_to_change(tensor)
    result = func(
        *(own.get(id(value), value) for value in args),
        **{key: own.get(id(value), value) for key, value in kwargs.items()},
    )
    if changed:
        return changed[0]
    first = result if isinstance(result, torch.Tensor) else result[0]
    gone = sum(dim < rows.part_dim for dim in dims) if first.dim() < rows.dim() else 0
    return parted_like(result, rows, rows.part_dim - gone)


class GradientFactor:
    """What gradients are multiplied by where they enter the rows of the model that was called last.

    ExactDDP multiplies the gradient of a large output by the number of ranks. A loss multiplies it by a number
    anyway, and if that number is multiplied beforehand, nobody has to go through the gradient's memory once more.
    Whoever asks for the numbers on the way has them without the factor.
    """

    now = 1.0


def gradient_factor(rows: RowsOnRanks) -> float:
    """The factor that a gradient of these rows may hold; none where a large number may be infinite."""
    return GradientFactor.now if rows.dtype in (torch.float32, torch.float64) else 1.0


def scaled_rows(numbers: torch.Tensor, sizes: Sequence[int], dim: int, times: float) -> RowsOnRanks:
    """Rows of which `numbers` holds the numbers times something."""
    rows = RowsOnRanks.of(numbers, sizes, dim)
    rows.family.times = times
    return rows


def softmax_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of softmax and log_softmax: what the gradient that comes holds more, that which goes holds, too."""
    gradient, output = args[:2]
    if is_parted(output) and not output.held.is_contiguous():  # torch 2.4 reads it as if it were
        args = gradient, RowsOnRanks.of(output.held, output.sizes, output.part_dim), *args[2:]
    if not is_parted(gradient) or gradient.family.times == 1:
        return map_along_dims(func, args, kwargs)
    layout = None, gradient.shape, gradient.stride()
    bare = RowsOnRanks.of(gradient.held, gradient.sizes, gradient.part_dim, *layout)
    result = map_along_dims(func, (bare, *args[1:]), kwargs)
    if result is not NotImplemented:
        result.family.times = gradient.family.times
    return result


def is_small(rows: RowsOnRanks) -> bool:
    """Whether to send the rows costs what it costs to send their sum: then each sum is what one process has."""
    return not is_large(rows.own, rows.sizes, rows.part_dim)


def add_up(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sums over the ranks of some small tensors, added in rank order, in one exchange."""
    flat = torch.cat([part.reshape(-1) for part in parts])
    world = world_size()
    totals = from_all_ranks(flat, [len(flat)] * world).view(world, -1)
    total = totals[0].clone()
    for row in totals[1:]:
        total += row
    return [
        piece.view(part.shape)
        for piece, part in zip(total.split([p.numel() for p in parts]), parts, strict=True)
    ]


def sum_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sum over the rows' dimension, alone or with others: what the ranks have is added up."""
    result, rows = map_along_given_dims(func, args, kwargs), args[0]
    if result is not NotImplemented or not is_parted(rows):
        return result
    if is_small(rows) and not (counts(rows, kwargs.get("dtype")) and whole_is_far(rows)):
        return NotImplemented
    (total,) = add_up(
        [func(rows.own, *args[1:], **{**kwargs, "dtype": exact(rows.dtype, kwargs.get("dtype"))})]
    )
    return total.to(kwargs.get("dtype") or (rows.dtype if rows.is_floating_point() else total.dtype))


def counts(rows: RowsOnRanks, dtype: "torch.dtype | None") -> bool:
    """Whether sums are of whole numbers, which are the same in any order: of a mask, or of labels."""
    kinds = (rows.dtype, dtype or rows.dtype)
    return not any(kind.is_floating_point or kind.is_complex for kind in kinds)


def whole_is_far(rows: RowsOnRanks) -> bool:
    """Whether the whole would have to come from the other ranks."""
    if rows.kept is not None and rows.kept_at == rows.family.changes:
        return False
    return rows.origin is None or rows.family.changes > 0 or rows.origin.loaded.whole is None


def average_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mean over the rows' dimension, alone or with others."""
    result, rows = map_along_given_dims(func, args, kwargs), args[0]
    if result is not NotImplemented or not is_parted(rows):
        return result
    if is_small(rows):
        return NotImplemented
    given = named(func, args, kwargs)
    dims = [index % rows.dim() for index in given.get("dim") or range(rows.dim())]
    count = 1
    for dim in dims:
        count *= rows.shape[dim]
    own = torch.sum(rows.own, dims, given.get("keepdim", False), dtype=exact(rows.dtype, given["dtype"]))
    return (add_up([own])[0] / count).to(given["dtype"] or rows.dtype)


def exact(dtype: torch.dtype, requested: "torch.dtype | None") -> "torch.dtype | None":
    """The dtype to add in: half precision is rounded once, at the end."""
    return torch.float32 if (requested or dtype) in (torch.float16, torch.bfloat16) else requested


def combine_parts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """max, min, any, all and norms of everything: of those of the ranks that have rows."""
    rows, given = args[0], named(func, args, kwargs)
    if not is_parted(rows) or not rows.numel() or given.get("dim") is not None or given.get("ord", 2) == 0:
        return NotImplemented
    size, at = rows.sizes[own_rank()], [min(size, 1) for size in rows.sizes]
    own = func(rows.own, *args[1:], **kwargs) if size else rows.own.new_empty(())
    result = from_all_ranks(own.reshape(1)[: at[own_rank()]], at)
    return func(result, *args[1:], **kwargs).reshape(own.shape)


def norm_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linalg_vector_norm, along dimensions or of everything."""
    result = map_along_dims(func, args, kwargs)
    return combine_parts(func, args, kwargs) if result is NotImplemented else result


def map_along_given_dims(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = named(func, args, kwargs)
    return map_along_dims(func, args, kwargs) if "dim" in given or "dims" in given else NotImplemented


def make_view(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dim: int, own: Any, sizes: Any = None
) -> Any:
    """A view of rows: of the own rows with the same memory, and of the whole as torch would have it."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    shape = func(whole, *args[1:], **kwargs)
    view = RowsOnRanks.of(own, sizes or rows.sizes, dim, rows.family, shape.shape, shape.stride())
    return as_the_whole(view, func, args, kwargs)


def reshape_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """view and its relatives, where the rows stay rows, or are split evenly, or merged with what is in each."""
    rows = args[0]
    shape = list(torch.empty(rows.shape, device="meta").reshape(args[1]).shape)
    place = reshaped_dim(list(rows.shape), rows.part_dim, shape) if rows.numel() else None
    if place is None:
        return NotImplemented
    dim, each = place  # each old row is so many of the new
    if any(size * each[0] % each[1] for size in rows.sizes):
        return NotImplemented
    sizes = tuple(size * each[0] // each[1] for size in rows.sizes)
    shape[dim] = sizes[own_rank()]
    return make_view(func, args, kwargs, dim, rows.held.view(shape), sizes)


def reshaped_dim(old: list[int], part_dim: int, new: list[int]) -> "tuple[int, tuple[int, int]] | None":
    """The dimension of the rows in another shape, and how many new rows (as a fraction) each old row is."""
    lead, inner, count = 1, 1, old[part_dim]
    for size in old[:part_dim]:
        lead *= size
    for size in old[part_dim + 1 :]:
        inner *= size
    before, after = 1, lead * count * inner
    for dim, size in enumerate(new):
        after //= size
        if before == lead and (size > 1 or count == 1):
            if inner % after == 0:
                return dim, (inner // after, 1)
            return (dim, (1, after // inner)) if after % inner == 0 else None
        before *= size
    return None


def permute_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """permute, transpose, t."""
    rows, given = args[0], named(func, args, kwargs)
    order = list(range(rows.dim()))
    if "dims" in given:
        order = [index % rows.dim() for index in given["dims"]]
    elif rows.dim() > 1:
        first, other = given.get("dim0", 0) % rows.dim(), given.get("dim1", 1) % rows.dim()
        order[first], order[other] = order[other], order[first]
    return make_view(func, args, kwargs, order.index(rows.part_dim), rows.held.permute(order))


def squeeze_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """squeeze, of dimensions other than the rows'."""
    rows, dim = args[0], named(func, args, kwargs).get("dim")
    dims = range(rows.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = [index % rows.dim() for index in dims if rows.shape[index] == 1] if rows.dim() else []
    if rows.part_dim in gone:
        return NotImplemented
    own = rows.held
    for index in sorted(gone, reverse=True):
        own = own.squeeze(index)
    return make_view(func, args, kwargs, rows.part_dim - sum(index < rows.part_dim for index in gone), own)


def unsqueeze_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rows, dim = args[0], args[1] % (args[0].dim() + 1)
    return make_view(func, args, kwargs, rows.part_dim + (dim <= rows.part_dim), rows.held.unsqueeze(dim))


def expand_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """expand, where it does not make many rows of one."""
    rows, shape = args[0], list(args[1])
    dim = rows.part_dim + len(shape) - rows.dim()
    if shape[dim] not in (-1, sum(rows.sizes)):
        return NotImplemented
    shape[dim] = rows.sizes[own_rank()]
    return make_view(func, args, kwargs, dim, rows.held.expand(shape))


def select_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 3]: of each row."""
    rows, dim = args[0], args[1] % args[0].dim()
    if dim == rows.part_dim:
        return NotImplemented
    return make_view(
        func, args, kwargs, rows.part_dim - (dim < rows.part_dim), rows.held.select(dim, args[2])
    )


def slice_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 1:3], of each row; x[4:8], of those rows that a rank has."""
    rows, given = args[0], named(func, args, kwargs)
    dim, total = given["dim"] % rows.dim(), rows.shape[given["dim"]]
    if dim != rows.part_dim:
        own = rows.held[(slice(None),) * dim + (slice(given["start"], given["end"], given["step"]),)]
        return make_view(func, args, kwargs, rows.part_dim, own)
    start, end, step = slice(given["start"], given["end"], given["step"]).indices(total)
    if step != 1:
        return NotImplemented
    sizes, own, at = [], rows.held, 0
    for rank, size in enumerate(rows.sizes):
        first, last = max(start - at, 0), min(end - at, size)
        sizes.append(max(last - first, 0))
        if rank == own_rank():
            own = rows.held.narrow(dim, min(first, size), sizes[-1])
        at += size
    return make_view(func, args, kwargs, rows.part_dim, own, tuple(sizes))


def alias_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """detach, alias: the same memory."""
    rows = args[0]
    twin = RowsOnRanks.of(rows.held, rows.sizes, rows.part_dim, rows.family, rows.shape, rows.stride())
    twin.kept, twin.kept_at, twin.origin = rows.kept, rows.kept_at, rows.origin
    return twin


def pad_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of select and slice: zeros around what was picked of each row."""
    rows, shape, dim = args[0], list(args[1]), args[2] % len(args[1])
    select = func._schema.name.endswith("select_backward")
    place = rows.part_dim + (select and dim <= rows.part_dim)
    if dim == place or shape[place] != sum(rows.sizes):
        return NotImplemented
    shape[place] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:]), rows.sizes, place)


def split_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """split and unbind, along other dimensions: of each row."""
    rows, given = args[0], named(func, args, kwargs)
    dim = given["dim"] % rows.dim()
    if dim == rows.part_dim:
        return NotImplemented
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    shapes, parts = func(whole, *args[1:], **kwargs), func(rows.held, *args[1:], **kwargs)
    place = rows.part_dim - (dim < rows.part_dim and parts[0].dim() < rows.dim())
    return [
        RowsOnRanks.of(part, rows.sizes, place, rows.family, shape.shape, shape.stride())
        for part, shape in zip(parts, shapes, strict=True)
    ]


def cat_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cat and stack, of rows that lie alike, along another dimension."""
    tensors, dim = args[0], named(func, args, kwargs)["dim"]
    rows, new = next(filter(is_parted, tensors)), func._schema.name.endswith("stack")
    own = [own_alike(tensor, rows) if tensor.dim() == rows.dim() else None for tensor in tensors]
    dim %= rows.dim() + new
    if any(part is None for part in own) or not new and dim == rows.part_dim:
        return NotImplemented
    return RowsOnRanks.of(func(own, dim), rows.sizes, rows.part_dim + (new and dim <= rows.part_dim))


def multiply_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm and bmm: rows times a matrix, or the sum over rows that both sides have."""
    first, other = args
    batched = first.dim() - 2
    if is_parted(first) and is_parted(other):
        if first.sizes != other.sizes:
            return NotImplemented
        if batched and first.part_dim == other.part_dim == 0:
            return RowsOnRanks.of(func(first.own, other.own), first.sizes, 0)
        if first.part_dim == batched + 1 and other.part_dim == batched:
            return add_up([func(first.own, other.own)])[0]
        return NotImplemented
    rows, whole = (first, plain_numbers(other)) if is_parted(first) else (other, plain_numbers(first))
    if batched and rows.part_dim == 0:
        own = own_slice(whole, rows.sizes, 0)
        return RowsOnRanks.of(func(rows.own, own) if rows is first else func(own, rows.own), rows.sizes, 0)
    if rows is first and rows.part_dim == batched:
        return RowsOnRanks.of(func(rows.own, whole), rows.sizes, batched)
    if rows is other and rows.part_dim == batched + 1:
        return RowsOnRanks.of(func(whole, rows.own), rows.sizes, batched + 1)
    own = own_slice(whole, rows.sizes, batched + 1 if rows is other else batched)
    return add_up([func(own, rows.own) if rows is other else func(rows.own, own)])[0]


def multiply_and_add_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm: a bias that all rows have, plus rows times a matrix."""
    bias, first, other = args
    if (
        kwargs
        or is_parted(bias)
        or is_parted(other)
        or not is_parted(first)
        or first.part_dim
        or bias.dim() > 1
    ):
        return NotImplemented
    return RowsOnRanks.of(func(plain_numbers(bias), first.own, plain_numbers(other)), first.sizes, 0)


# torch's numbers for reduction=
NO_REDUCTION = 0
MEAN_REDUCTION = 1
SUM_REDUCTION = 2


def class_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """nll_loss_forward: the sum of the weighted losses and the sum of the weights, over all rows."""
    rows, target, weight, reduction, ignored = args
    if not is_parted(rows) or rows.dim() < 2 or rows.part_dim:
        return NotImplemented
    own = own_alike(target, rows)
    if own is None:
        return NotImplemented
    if reduction == NO_REDUCTION:
        each, total = func(rows.own, own, weight, reduction, ignored)
        return RowsOnRanks.of(each, rows.sizes, 0), total
    if is_small(rows):
        return NotImplemented
    loss, weights = add_up(func(rows.own, own, weight, SUM_REDUCTION, ignored))
    return (loss / weights if reduction == MEAN_REDUCTION else loss), weights


def class_loss_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """nll_loss_backward; total_weight is that of all rows."""
    gradient, rows, target, weight, reduction, ignored, total = args
    if not is_parted(rows) or rows.dim() < 2 or rows.part_dim:
        return NotImplemented
    own = own_alike(target, rows)
    given = own_alike(gradient, rows) if reduction == NO_REDUCTION else plain_numbers(gradient)
    if own is None or given is None:
        return NotImplemented
    times = 1.0 if reduction == NO_REDUCTION else gradient_factor(rows)
    result = func(
        given if times == 1 else given * times,
        rows.own.contiguous(),
        own,
        weight,
        reduction,
        ignored,
        plain_numbers(total),
    )
    return scaled_rows(result, rows.sizes, 0, times)


def own_beside(value: Any, sizes: Sequence[int], place: int) -> Any:
    """The part of an argument that the own rows meet when both are broadcast; None if it does not lie alike.

    The rows' dimension is `place`, counted from the last; what is no tensor is its own part.
    """
    if is_parted(value):
        return value.own if (value.sizes, value.dim() - value.part_dim) == (sizes, place) else None
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() < place:
        return plain_numbers(value)
    if value.shape[-place] == sum(sizes):
        return own_slice(plain_numbers(value), sizes, value.dim() - place)
    return plain_numbers(value) if value.shape[-place] == 1 else None


def own_pair(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> "tuple[dict[str, Any], RowsOnRanks, dict[str, Any]] | None":
    """The arguments of a loss of each element beside its target's, its rows, and the own parts of the arguments."""
    given = named(func, args, kwargs)
    rows = next(filter(is_parted, given.values()))
    place = rows.dim() - rows.part_dim
    own = {name: own_beside(value, rows.sizes, place) for name, value in given.items()}
    lies_alike = all(own[name] is not None or value is None for name, value in given.items())
    return (given, rows, own) if lies_alike and given["self"].shape == rows.shape else None


def pair_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mse_loss and its relatives: of each element beside its target's, then their mean or sum."""
    pair = own_pair(func, args, kwargs)
    if pair is None:
        return NotImplemented
    given, rows, own = pair
    reduction = given["reduction"]
    if reduction == NO_REDUCTION:
        return RowsOnRanks.of(func(**own), rows.sizes, rows.part_dim)
    if is_small(rows):
        return NotImplemented
    (total,) = add_up([func(**{**own, "reduction": SUM_REDUCTION})])
    return total / rows.numel() if reduction == MEAN_REDUCTION else total


def pair_loss_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mse_loss_backward and its relatives: the mean is over all rows."""
    pair = own_pair(func, args, kwargs)
    if pair is None:
        return NotImplemented
    given, rows, own = pair
    times = 1.0 if given["reduction"] == NO_REDUCTION else gradient_factor(rows)
    if given["reduction"] == MEAN_REDUCTION:
        own |= {"grad_output": own["grad_output"] / rows.numel(), "reduction": SUM_REDUCTION}
    if times != 1:
        own["grad_output"] = own["grad_output"] * times
    return scaled_rows(func(**own), rows.sizes, rows.part_dim, times)


def own_alike(tensor: torch.Tensor, rows: RowsOnRanks) -> "torch.Tensor | None":
    """The part of a tensor that lies beside these rows, in front or in the same shape; None if none does."""
    if is_parted(tensor):
        return tensor.own if (tensor.sizes, tensor.part_dim) == (rows.sizes, rows.part_dim) else None
    if tensor.dim() <= rows.part_dim or tensor.shape[rows.part_dim] != sum(rows.sizes):
        return None
    return own_slice(plain_numbers(tensor), rows.sizes, rows.part_dim)


def look_up_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding: a row of the table for each index."""
    if is_parted(args[0]) or not is_parted(args[1]):
        return NotImplemented
    result = func(plain_numbers(args[0]), args[1].own, *args[2:], **kwargs)
    return RowsOnRanks.of(result, args[1].sizes, args[1].part_dim)


def sum_looked_up_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding_dense_backward: what the ranks' rows add to the table's gradient."""
    gradient, indices, count, padding, by_frequency = args
    own = own_alike(gradient, indices) if is_parted(indices) else None
    if own is None or by_frequency:
        return NotImplemented
    return add_up([func(own, indices.own, count, padding, by_frequency)])[0]


def index_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, chosen]: from each row."""
    rows, indices = args
    if not is_parted(rows) or any(is_parted(index) for index in indices):
        return NotImplemented
    first = next(dim for dim, index in enumerate(indices) if index is not None)
    if first <= rows.part_dim or any(
        index is None for index in indices[first:]
    ):  # the row picked from, or moved
        return NotImplemented
    own = func(rows.own, [index if index is None else plain_numbers(index) for index in indices])
    return RowsOnRanks.of(own, rows.sizes, rows.part_dim)


def draw_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """rand_like and its relatives: all ranks draw for all rows, as one process would."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device=rows.device)
    return func(whole, *args[1:], **kwargs)


def ways_by_name(ways: "dict[Way, str]") -> "dict[str, Way]":
    """The way of each function, from the functions of each way: aten's names with their overloads."""
    return {name: way for way, names in ways.items() for name in names.split()}


# Beside these: map_elements for all that torch itself says is pointwise (torch.Tag.pointwise).
WAYS = ways_by_name(
    {
        map_rows: "clone empty_like zeros_like ones_like full_like is_pinned",
        move_rows: "_to_copy _pin_memory",
        map_elements: """copy_ fill_.Scalar fill_.Tensor zero_ where.self leaky_relu_backward elu_backward
            softplus_backward hardtanh_backward hardswish hardswish_backward hardsigmoid_backward""",
        make_like: "new_empty new_zeros new_ones new_full",
        make_plain: "new_empty_strided",
        draw_like: "rand_like randn_like randint_like randint_like.low_dtype",
        map_along_dims: """amax
            amin max.dim min.dim argmax argmin logsumexp prod.dim_int any.dim all.dim any.dims all.dims
            var.correction std.correction var_mean.correction std_mean.correction var.dim std.dim norm.ScalarOpt_dim
            norm.ScalarOpt_dim_dtype median.dim mode kthvalue nansum cumsum cumprod sort sort.stable argsort topk
            _softmax _log_softmax cummax cummin flip gather glu
            logcumsumexp scatter.src scatter.value scatter_.src scatter_.value scatter_add scatter_add_""",
        softmax_gradient: "_softmax_backward_data _log_softmax_backward_data",
        sum_rows: "sum sum.dim_IntList",
        average_rows: "mean mean.dim",
        combine_parts: "max min any all",
        norm_rows: "linalg_vector_norm",
        reshape_rows: "view _unsafe_view _reshape_alias",
        permute_rows: "permute transpose.int t",
        squeeze_rows: "squeeze squeeze.dim squeeze.dims",
        unsqueeze_rows: "unsqueeze",
        expand_rows: "expand",
        select_rows: "select.int",
        slice_rows: "slice.Tensor",
        index_rows: "index.Tensor",
        alias_rows: "detach alias lift_fresh",
        pad_gradient: "select_backward slice_backward",
        split_rows: "split.Tensor split_with_sizes unbind.int",
        cat_rows: "cat stack",
        multiply_rows: "mm bmm",
        multiply_and_add_rows: "addmm",
        look_up_rows: "embedding",
        sum_looked_up_gradient: "embedding_dense_backward",
        class_loss: "nll_loss_forward nll_loss2d_forward",
        class_loss_gradient: "nll_loss_backward nll_loss2d_backward",
        pair_loss: """mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss
            binary_cross_entropy_with_logits""",
        pair_loss_gradient: """mse_loss_backward smooth_l1_loss_backward huber_loss_backward
            binary_cross_entropy_backward soft_margin_loss_backward""",
    }
)
