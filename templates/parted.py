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
from .loaded import LoadedRows, Origin, is_large
from .process import own_rank, world_size
from .rows import RowsMade, concatenate_ranks, from_all_ranks, own_slice


class RowsOnRanks(torch.Tensor):
    """A whole tensor, parted among the ranks along one dimension: rank r holds `sizes[r]` of its rows."""

    held: torch.Tensor  # this rank's rows, times what the family says
    sizes: tuple[int, ...]
    part_dim: int  # the dimension along which the rows lie
    kept: "torch.Tensor | None"  # the whole, once something has asked for it
    kept_at: int  # the changes that there were then
    family: "Family"
    origin: "Origin | None"  # of rows of a batch

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(
        own: torch.Tensor,
        sizes: Sequence[int],
        dim: int = 0,
        family: "Family | None" = None,
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
        rows.family = Family() if family is None else family
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


class Family:
    """RowsOnRanks that share their memory: what changes one of them in place changes all."""

    def __init__(self) -> None:
        self.lent = False  # the memory is another's, who may need it as it is: the wrapped model's
        self.times = 1.0  # the memory holds the numbers times this: see FactorAhead
        self.changes = 0
        self.base: Origin | None = None  # of the memory, of which the members are views
        self.members: list[weakref.ref[RowsOnRanks]] = []

    def add(self, rows: RowsOnRanks) -> None:
        self.members = [*(one for one in self.members if one() is not None), weakref.ref(rows)]

    def others(self, rows: RowsOnRanks) -> list[RowsOnRanks]:
        """The living members but for one."""
        living = (one() for one in self.members)
        return [one for one in living if one is not None and one is not rows]


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
    """Of each tensor of a batch whether its rows are handled apart: it is large, and nothing else shares its memory.

    In tuples, lists and dicts; any other batch stays whole. One rank says it for all: a view of a larger tensor may
    lie in other memory on the others.
    """
    leaves: list[Any] = []
    if not collect_leaves(whole, leaves):
        return []
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    memories = [one.untyped_storage()._cdata for one in tensors]
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
    rows.origin = rows.family.base = Origin(loaded)
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
        for one, origin in known:
            one.held = one.kept = origin.behind(family.base, memory)
            one.origin = None
    elif family.others(rows):
        raise RuntimeError(CROSSES)
    else:
        rows.held = rows.kept = plain_numbers(rows).clone()
        rows.origin = None
    family.lent = False


def known_members(rows: RowsOnRanks) -> "list[tuple[RowsOnRanks, Origin]] | None":
    """All that share the memory, with their origins; None if not all of them can be made of the whole anew."""
    found = [(one, one.origin) for one in (rows, *rows.family.others(rows)) if one.origin is not None]
    is_all = len(found) == 1 + len(rows.family.others(rows))
    return found if is_all and rows.family.base is not None and not rows.family.changes else None


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
        not isinstance(one, (int, slice)) and one is not Ellipsis or isinstance(one, bool) for one in keys
    ):
        return False
    if any(one is Ellipsis for one in keys):
        place = next(i for i, one in enumerate(keys) if one is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (dims - len(keys) + 1)
    return len(keys) <= dim or keys[dim] == slice(None)


# How a function of torch is run on rows: (function, arguments by their names, args, kwargs) -> result, or
# NotImplemented where this way does not hold: then it gets the whole.
Way = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def run_on_rows(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch, called with RowsOnRanks among its arguments."""
    parted = [rows for one in (*args, *kwargs.values()) for rows in rows_in(one) if is_parted(rows)]
    if all(map(has_come, parted)):
        for rows in parted:
            become_whole(rows)
        return run_on_whole(func, args, kwargs)
    way = WAYS.get(func.name().removeprefix("aten::"))
    if way is None and is_pointwise(func):
        way = by_element
    if way is None and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):
        return func.decompose(*args, **kwargs)  # made of simpler functions, which come by here in turn
    found = NotImplemented if way is None else way(func, args, kwargs)
    return run_on_whole(func, args, kwargs) if found is NotImplemented else found


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
    viewed = [value for argument, value in given if argument.alias_info is not None and is_parted(value)]
    found = func(*map_tensors(args, plain_numbers), **map_tensors(kwargs, plain_numbers))
    if viewed:  # a view of the whole, by which nobody can write into the rows of the other ranks
        views = [
            whole_view(one.clone(), viewed[0]) for one in (found if isinstance(found, list) else [found])
        ]
        return views if isinstance(found, list) else views[0]
    return changed[0] if changed and gives_what_it_changed(func) else found


def gives_what_it_changed(func: Any) -> bool:
    """Whether a function returns the argument that it changes (x.add_), and not something new beside it."""
    given = func._schema.returns
    return len(given) == 1 and given[0].alias_info is not None and bool(given[0].alias_info.is_write)


def whole_view(found: torch.Tensor, rows: RowsOnRanks) -> torch.Tensor:
    """A whole that stands for a view of rows: neither may be changed while both are there."""
    view = RowsOnRanks.of(
        found, (found.shape[0] if found.dim() else 1,), 0, rows.family, found.shape, found.stride()
    )
    view.kept = found
    return view


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The arguments of a call beside what the function's schema says of them."""
    schema = func._schema.arguments
    return [
        *zip(schema, args, strict=False),
        *((one, kwargs[one.name]) for one in schema if one.name in kwargs),
    ]


def named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names, with what they are by default."""
    values = {one.name: one.default_value for one in func._schema.arguments if one.has_default_value()}
    return values | {argument.name: value for argument, value in bound(func, args, kwargs)}


def writes(argument: Any) -> bool:
    """Whether a function changes this argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def rows_in(value: Any) -> list[RowsOnRanks]:
    """The RowsOnRanks in an argument."""
    return [
        one
        for one in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(one, RowsOnRanks)
    ]


def about_to_change(rows: RowsOnRanks) -> None:
    """Note a change in place; it must reach all that shares the memory."""
    if any(is_parted(one) != is_parted(rows) for one in rows.family.others(rows)):
        raise RuntimeError(CROSSES)
    have_own_memory(rows.family)
    rows.family.changes += 1


def have_own_memory(family: Family) -> None:
    """Go on with a copy of memory that is lent, or holds other numbers: all who share it, on the same one."""
    if not family.lent and family.times == 1:
        return
    members = [one for one in (each() for each in family.members) if one is not None]
    spans = [(one.held.storage_offset(), span_of(one.held)) for one in members]
    first, last = min(start for start, _ in spans), max(start + size for start, size in spans)
    memory = members[0].held.as_strided([last - first], [1], first)
    copied = memory.clone() if family.times == 1 else memory / family.times
    for one in members:
        one.held = copied.as_strided(one.held.shape, one.held.stride(), one.held.storage_offset() - first)
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


def by_element(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each element: of rows that lie alike, beside what has one row, or all of them, or none."""
    given = [*args, *kwargs.values()]
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    layouts = {(one.sizes, one.dim() - one.part_dim) for one in tensors if is_parted(one)}
    if len(layouts) != 1 or any(isinstance(one, (list, tuple)) and rows_in(one) for one in given):
        return NotImplemented
    sizes, place = layouts.pop()  # the rows' dimension, counted from the last
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if any(not is_parted(one) for one in changed):
        return NotImplemented
    own = [own_beside(one, sizes, place) for one in given]
    if any(part is None is not one for part, one in zip(own, given, strict=True)):
        return NotImplemented  # one row in all, beside more
    for rows in changed:
        about_to_change(rows)
    if changed:
        own = [own_beside(one, sizes, place) for one in given]  # in memory that may be changed
    found = func(*own[: len(args)], **dict(zip(kwargs, own[len(args) :], strict=True)))
    if changed:
        return changed[0]
    first = max(filter(is_parted, tensors), key=lambda one: one.dim())
    found = parted_like(found, first, max(one.dim() for one in tensors) - place)
    return as_the_whole(found, func, args, kwargs) if len(tensors) == 1 and tensors[0] is args[0] else found


def parted_like(found: Any, rows: RowsOnRanks, dim: int) -> Any:
    """What was computed on the own rows, as RowsOnRanks; also in a tuple. What is no tensor stays."""
    if isinstance(found, torch.Tensor):
        return in_memory_as(found, rows, dim)
    if not isinstance(found, (list, tuple)):
        return found
    return type(found)(parted_like(one, rows, dim) for one in found)


def in_memory_as(found: torch.Tensor, rows: RowsOnRanks, dim: int) -> RowsOnRanks:
    """Rows whose dimensions lie in memory as those of others, of their shape, do: random numbers come in that order."""
    shape = [*found.shape]
    shape[dim] = sum(rows.sizes)
    if rows.is_contiguous() or shape != [*rows.shape]:
        return RowsOnRanks.of(found, rows.sizes, dim)
    strides = torch.empty_like(torch.empty_strided(shape, rows.stride(), device="meta")).stride()
    order = sorted(range(len(shape)), key=lambda one: -strides[one])
    back = sorted(range(len(shape)), key=order.__getitem__)
    own = found.permute(order).contiguous().permute(back)
    return RowsOnRanks.of(own, rows.sizes, dim, None, shape, strides)


def by_row(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions of each row of their first argument, whatever its shape."""
    rows = args[0]
    if not is_parted(rows) or any(isinstance(one, torch.Tensor) for one in (*args[1:], *kwargs.values())):
        return NotImplemented
    found = func(rows.own, *args[1:], **kwargs)
    if kwargs.get("memory_format", torch.preserve_format) is not torch.preserve_format:
        return RowsOnRanks.of(found, rows.sizes, rows.part_dim)
    return parted_like(found, rows, rows.part_dim)


def moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To another device or dtype: of a batch that lies in every rank's memory, the rest goes when it is asked for."""
    return as_the_whole(by_row(func, args, kwargs), func, args, kwargs)


def as_the_whole(found: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What was made of rows, with the origin by which the same can be made of the whole."""
    rows = args[0]
    if isinstance(found, RowsOnRanks) and rows.origin is not None and not rows.family.changes:
        found.origin = rows.origin.then(lambda whole: func(whole, *args[1:], **kwargs))
        if found.family is not rows.family:
            found.family.base = found.origin
    return found


def made_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_zeros and its relatives: rows of a shape of their own, of as many rows where that is possible."""
    rows, shape = args[0], list(args[1])
    dim, total = rows.part_dim, sum(rows.sizes)
    if len(shape) <= dim or shape[dim] != total or total < 2:
        return func(rows.own, *args[1:], **kwargs)
    shape[dim] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:], **kwargs), rows.sizes, dim)


def made_plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_empty_strided: autograd makes gradients of views so, and writes into them by as_strided."""
    return func(args[0].own, *args[1:], **kwargs)


def along(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Functions along dimensions: of each row alone, if the rows' own is not among them."""
    given = named(func, args, kwargs)
    rows = next((one for one in (*args, *kwargs.values()) if is_parted(one)), None)
    dims = given["dim"] if "dim" in given else given["dims"]
    if rows is None or not isinstance(args[0], torch.Tensor) or dims is None or rows.dim() == 0:
        return NotImplemented
    dims = [one % rows.dim() for one in (dims if isinstance(dims, (list, tuple)) else [dims])]
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    own = {id(one): own_alike(one, rows) if one.dim() == rows.dim() else None for one in tensors}
    changed = [value for argument, value in bound(func, args, kwargs) if writes(argument)]
    if not dims or rows.part_dim in dims or None in own.values() or not all(map(is_parted, changed)):
        return NotImplemented
    for one in changed:
        about_to_change(one)
    found = func(
        *(own.get(id(one), one) for one in args),
        **{key: own.get(id(one), one) for key, one in kwargs.items()},
    )
    if changed:
        return changed[0]
    first = found if isinstance(found, torch.Tensor) else found[0]
    gone = sum(dim < rows.part_dim for dim in dims) if first.dim() < rows.dim() else 0
    return parted_like(found, rows, rows.part_dim - gone)


class FactorAhead:
    """What gradients are multiplied by where they enter the rows of the model that was called last.

    ExactDDP multiplies the gradient of a large output by the number of ranks. A loss multiplies it by a number
    anyway, and if that number is multiplied beforehand, nobody has to go through the gradient's memory once more.
    Whoever asks for the numbers on the way has them without the factor.
    """

    now = 1.0


def ahead(rows: RowsOnRanks) -> float:
    """The factor that a gradient of these rows may hold; none where a large number may be infinite."""
    return FactorAhead.now if rows.dtype in (torch.float32, torch.float64) else 1.0


def holding(found: torch.Tensor, sizes: Sequence[int], dim: int, times: float) -> RowsOnRanks:
    """Rows of which `found` holds the numbers times something."""
    rows = RowsOnRanks.of(found, sizes, dim)
    rows.family.times = times
    return rows


def softmax_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of softmax and log_softmax: what the gradient that comes holds more, that which goes holds, too."""
    gradient = args[0]
    if not is_parted(gradient) or gradient.family.times == 1:
        return along(func, args, kwargs)
    layout = None, gradient.shape, gradient.stride()
    bare = RowsOnRanks.of(gradient.held, gradient.sizes, gradient.part_dim, *layout)
    found = along(func, (bare, *args[1:]), kwargs)
    if found is not NotImplemented:
        found.family.times = gradient.family.times
    return found


def is_small(rows: RowsOnRanks) -> bool:
    """Whether to send the rows costs what it costs to send their sum: then each sum is what one process has."""
    return not is_large(rows.own, rows.sizes, rows.part_dim)


def add_up(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The sums over the ranks of some small tensors, added in rank order, in one exchange."""
    flat = torch.cat([one.reshape(-1) for one in parts])
    world = world_size()
    found = from_all_ranks(flat, [len(flat)] * world).view(world, -1)
    total = found[0].clone()
    for one in found[1:]:
        total += one
    return [
        one.view(part.shape) for one, part in zip(total.split([p.numel() for p in parts]), parts, strict=True)
    ]


def summed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sum over the rows' dimension, alone or with others: what the ranks have is added up."""
    found, rows = along_if_it_can(func, args, kwargs), args[0]
    if found is not NotImplemented or not is_parted(rows):
        return found
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


def averaged(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mean over the rows' dimension, alone or with others."""
    found, rows = along_if_it_can(func, args, kwargs), args[0]
    if found is not NotImplemented or not is_parted(rows):
        return found
    if is_small(rows):
        return NotImplemented
    given = named(func, args, kwargs)
    dims = [one % rows.dim() for one in given.get("dim") or range(rows.dim())]
    count = 1
    for dim in dims:
        count *= rows.shape[dim]
    own = torch.sum(rows.own, dims, given.get("keepdim", False), dtype=exact(rows.dtype, given["dtype"]))
    return (add_up([own])[0] / count).to(given["dtype"] or rows.dtype)


def exact(dtype: torch.dtype, asked: "torch.dtype | None") -> "torch.dtype | None":
    """The dtype to add in: half precision is rounded once, at the end."""
    return torch.float32 if (asked or dtype) in (torch.float16, torch.bfloat16) else asked


def of_parts(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """max, min, any, all and norms of everything: of those of the ranks that have rows."""
    rows, given = args[0], named(func, args, kwargs)
    if not is_parted(rows) or not rows.numel() or given.get("dim") is not None or given.get("ord", 2) == 0:
        return NotImplemented
    size, at = rows.sizes[own_rank()], [min(size, 1) for size in rows.sizes]
    own = func(rows.own, *args[1:], **kwargs) if size else rows.own.new_empty(())
    found = from_all_ranks(own.reshape(1)[: at[own_rank()]], at)
    return func(found, *args[1:], **kwargs).reshape(own.shape)


def normed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linalg_vector_norm, along dimensions or of everything."""
    found = along(func, args, kwargs)
    return of_parts(func, args, kwargs) if found is NotImplemented else found


def along_if_it_can(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = named(func, args, kwargs)
    return along(func, args, kwargs) if "dim" in given or "dims" in given else NotImplemented


def viewed(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dim: int, own: Any, sizes: Any = None
) -> Any:
    """A view of rows: of the own rows with the same memory, and of the whole as torch would have it."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device="meta")
    shape = func(whole, *args[1:], **kwargs)
    view = RowsOnRanks.of(own, sizes or rows.sizes, dim, rows.family, shape.shape, shape.stride())
    return as_the_whole(view, func, args, kwargs)


def reshaped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
    return viewed(func, args, kwargs, dim, rows.held.view(shape), sizes)


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


def permuted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """permute, transpose, t."""
    rows, given = args[0], named(func, args, kwargs)
    order = list(range(rows.dim()))
    if "dims" in given:
        order = [one % rows.dim() for one in given["dims"]]
    elif rows.dim() > 1:
        one, other = given.get("dim0", 0) % rows.dim(), given.get("dim1", 1) % rows.dim()
        order[one], order[other] = order[other], order[one]
    return viewed(func, args, kwargs, order.index(rows.part_dim), rows.held.permute(order))


def squeezed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """squeeze, of dimensions other than the rows'."""
    rows, dim = args[0], named(func, args, kwargs).get("dim")
    asked = range(rows.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = [one % rows.dim() for one in asked if rows.shape[one] == 1] if rows.dim() else []
    if rows.part_dim in gone:
        return NotImplemented
    own = rows.held
    for one in sorted(gone, reverse=True):
        own = own.squeeze(one)
    return viewed(func, args, kwargs, rows.part_dim - sum(one < rows.part_dim for one in gone), own)


def unsqueezed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rows, dim = args[0], args[1] % (args[0].dim() + 1)
    return viewed(func, args, kwargs, rows.part_dim + (dim <= rows.part_dim), rows.held.unsqueeze(dim))


def expanded(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """expand, where it does not make many rows of one."""
    rows, shape = args[0], list(args[1])
    dim = rows.part_dim + len(shape) - rows.dim()
    if shape[dim] not in (-1, sum(rows.sizes)):
        return NotImplemented
    shape[dim] = rows.sizes[own_rank()]
    return viewed(func, args, kwargs, dim, rows.held.expand(shape))


def selected(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 3]: of each row."""
    rows, dim = args[0], args[1] % args[0].dim()
    if dim == rows.part_dim:
        return NotImplemented
    return viewed(func, args, kwargs, rows.part_dim - (dim < rows.part_dim), rows.held.select(dim, args[2]))


def sliced(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, 1:3], of each row; x[4:8], of those rows that a rank has."""
    rows, given = args[0], named(func, args, kwargs)
    dim, total = given["dim"] % rows.dim(), rows.shape[given["dim"]]
    if dim != rows.part_dim:
        own = rows.held[(slice(None),) * dim + (slice(given["start"], given["end"], given["step"]),)]
        return viewed(func, args, kwargs, rows.part_dim, own)
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
    return viewed(func, args, kwargs, rows.part_dim, own, tuple(sizes))


def aliased(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """detach, alias: the same memory."""
    rows = args[0]
    twin = RowsOnRanks.of(rows.held, rows.sizes, rows.part_dim, rows.family, rows.shape, rows.stride())
    twin.kept, twin.kept_at, twin.origin = rows.kept, rows.kept_at, rows.origin
    return twin


def one_of_many(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of select and slice: zeros around what was picked of each row."""
    rows, shape, dim = args[0], list(args[1]), args[2] % len(args[1])
    select = func._schema.name.endswith("select_backward")
    place = rows.part_dim + (select and dim <= rows.part_dim)
    if dim == place or shape[place] != sum(rows.sizes):
        return NotImplemented
    shape[place] = rows.sizes[own_rank()]
    return RowsOnRanks.of(func(rows.own, shape, *args[2:]), rows.sizes, place)


def several(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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


def side_by_side(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cat and stack, of rows that lie alike, along another dimension."""
    tensors, dim = args[0], named(func, args, kwargs)["dim"]
    rows, new = next(filter(is_parted, tensors)), func._schema.name.endswith("stack")
    own = [own_alike(one, rows) if one.dim() == rows.dim() else None for one in tensors]
    dim %= rows.dim() + new
    if any(one is None for one in own) or not new and dim == rows.part_dim:
        return NotImplemented
    return RowsOnRanks.of(func(own, dim), rows.sizes, rows.part_dim + (new and dim <= rows.part_dim))


def multiplied(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mm and bmm: rows times a matrix, or the sum over rows that both sides have."""
    one, other = args
    batched = one.dim() - 2
    if is_parted(one) and is_parted(other):
        if one.sizes != other.sizes:
            return NotImplemented
        if batched and one.part_dim == other.part_dim == 0:
            return RowsOnRanks.of(func(one.own, other.own), one.sizes, 0)
        if one.part_dim == batched + 1 and other.part_dim == batched:
            return add_up([func(one.own, other.own)])[0]
        return NotImplemented
    rows, whole = (one, plain_numbers(other)) if is_parted(one) else (other, plain_numbers(one))
    if batched and rows.part_dim == 0:
        own = own_slice(whole, rows.sizes, 0)
        return RowsOnRanks.of(func(rows.own, own) if rows is one else func(own, rows.own), rows.sizes, 0)
    if rows is one and rows.part_dim == batched:
        return RowsOnRanks.of(func(rows.own, whole), rows.sizes, batched)
    if rows is other and rows.part_dim == batched + 1:
        return RowsOnRanks.of(func(whole, rows.own), rows.sizes, batched + 1)
    own = own_slice(whole, rows.sizes, batched + 1 if rows is other else batched)
    return add_up([func(own, rows.own) if rows is other else func(rows.own, own)])[0]


def multiplied_and_added(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm: a bias that all rows have, plus rows times a matrix."""
    bias, one, other = args
    if kwargs or is_parted(bias) or is_parted(other) or not is_parted(one) or one.part_dim or bias.dim() > 1:
        return NotImplemented
    return RowsOnRanks.of(func(plain_numbers(bias), one.own, plain_numbers(other)), one.sizes, 0)


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
    times = 1.0 if reduction == NO_REDUCTION else ahead(rows)
    found = func(
        given if times == 1 else given * times,
        rows.own.contiguous(),
        own,
        weight,
        reduction,
        ignored,
        plain_numbers(total),
    )
    return holding(found, rows.sizes, 0, times)


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
    own = {name: own_beside(one, rows.sizes, place) for name, one in given.items()}
    lies_alike = all(own[name] is not None or one is None for name, one in given.items())
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
    times = 1.0 if given["reduction"] == NO_REDUCTION else ahead(rows)
    if given["reduction"] == MEAN_REDUCTION:
        own |= {"grad_output": own["grad_output"] / rows.numel(), "reduction": SUM_REDUCTION}
    if times != 1:
        own["grad_output"] = own["grad_output"] * times
    return holding(func(**own), rows.sizes, rows.part_dim, times)


def own_alike(tensor: torch.Tensor, rows: RowsOnRanks) -> "torch.Tensor | None":
    """The part of a tensor that lies beside these rows, in front or in the same shape; None if none does."""
    if is_parted(tensor):
        return tensor.own if (tensor.sizes, tensor.part_dim) == (rows.sizes, rows.part_dim) else None
    if tensor.dim() <= rows.part_dim or tensor.shape[rows.part_dim] != sum(rows.sizes):
        return None
    return own_slice(plain_numbers(tensor), rows.sizes, rows.part_dim)


def looked_up(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding: a row of the table for each index."""
    if is_parted(args[0]) or not is_parted(args[1]):
        return NotImplemented
    found = func(plain_numbers(args[0]), args[1].own, *args[2:], **kwargs)
    return RowsOnRanks.of(found, args[1].sizes, args[1].part_dim)


def looked_up_gradient(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """embedding_dense_backward: what the ranks' rows add to the table's gradient."""
    gradient, indices, count, padding, by_frequency = args
    own = own_alike(gradient, indices) if is_parted(indices) else None
    if own is None or by_frequency:
        return NotImplemented
    return add_up([func(own, indices.own, count, padding, by_frequency)])[0]


def picked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """x[:, chosen]: from each row."""
    rows, indices = args
    if not is_parted(rows) or any(is_parted(one) for one in indices):
        return NotImplemented
    first = next(dim for dim, one in enumerate(indices) if one is not None)
    if first <= rows.part_dim or any(one is None for one in indices[first:]):  # the row picked from, or moved
        return NotImplemented
    own = func(rows.own, [one if one is None else plain_numbers(one) for one in indices])
    return RowsOnRanks.of(own, rows.sizes, rows.part_dim)


def drawn_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """rand_like and its relatives: all ranks draw for all rows, as one process would."""
    rows = args[0]
    whole = torch.empty_strided(rows.shape, rows.stride(), dtype=rows.dtype, device=rows.device)
    return func(whole, *args[1:], **kwargs)


def by_name(ways: "dict[Way, str]") -> "dict[str, Way]":
    """The way of each function, from the functions of each way: aten's names with their overloads."""
    return {name: way for way, names in ways.items() for name in names.split()}


# Beside these: by_element for all that torch itself says is pointwise (torch.Tag.pointwise).
WAYS = by_name(
    {
        by_row: "clone empty_like zeros_like ones_like full_like is_pinned",
        moved: "_to_copy _pin_memory",
        by_element: """copy_ fill_.Scalar fill_.Tensor zero_ where.self leaky_relu_backward elu_backward
            softplus_backward hardtanh_backward hardswish hardswish_backward hardsigmoid_backward""",
        made_like: "new_empty new_zeros new_ones new_full",
        made_plain: "new_empty_strided",
        drawn_like: "rand_like randn_like randint_like randint_like.low_dtype",
        along: """amax amin max.dim min.dim argmax argmin logsumexp prod.dim_int any.dim all.dim any.dims all.dims
            var.correction std.correction var_mean.correction std_mean.correction var.dim std.dim norm.ScalarOpt_dim
            norm.ScalarOpt_dim_dtype median.dim mode kthvalue nansum cumsum cumprod sort sort.stable argsort topk
            _softmax _log_softmax cummax cummin flip gather glu
            logcumsumexp scatter.src scatter.value scatter_.src scatter_.value scatter_add scatter_add_""",
        softmax_gradient: "_softmax_backward_data _log_softmax_backward_data",
        summed: "sum sum.dim_IntList",
        averaged: "mean mean.dim",
        of_parts: "max min any all",
        normed: "linalg_vector_norm",
        reshaped: "view _unsafe_view _reshape_alias",
        permuted: "permute transpose.int t",
        squeezed: "squeeze squeeze.dim squeeze.dims",
        unsqueezed: "unsqueeze",
        expanded: "expand",
        selected: "select.int",
        sliced: "slice.Tensor",
        picked: "index.Tensor",
        aliased: "detach alias lift_fresh",
        one_of_many: "select_backward slice_backward",
        several: "split.Tensor split_with_sizes unbind.int",
        side_by_side: "cat stack",
        multiplied: "mm bmm",
        multiplied_and_added: "addmm",
        looked_up: "embedding",
        looked_up_gradient: "embedding_dense_backward",
        class_loss: "nll_loss_forward nll_loss2d_forward",
        class_loss_gradient: "nll_loss_backward nll_loss2d_backward",
        pair_loss: """mse_loss smooth_l1_loss huber_loss binary_cross_entropy soft_margin_loss
            binary_cross_entropy_with_logits""",
        pair_loss_gradient: """mse_loss_backward smooth_l1_loss_backward huber_loss_backward
            binary_cross_entropy_backward soft_margin_loss_backward""",
    }
)
