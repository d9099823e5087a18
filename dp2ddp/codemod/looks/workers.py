"""What a DataLoader's workers share with the main flow: rank 0 alone has workers, and what they fill is rank 0's."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from dp2ddp.codemod.knowledge.derived import LOADER, LOADERS
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.threads import MEETING_POINTS, changed, draws
from dp2ddp.codemod.looks.uses import bases_in_libraries
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, inside, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds

NO_WORKERS = ((5, "num_workers", 0),)
IN_ORDER = ((2, "shuffle", False), (3, "sampler", None), (4, "batch_sampler", None))
RUN_IN_WORKERS = words("__getitem__ __getitems__ __iter__ __next__ __call__")  # of data sets and transforms
HANDED_TO_LOADERS = ("collate_fn", "worker_init_fn")
# What makes memory that processes share. A context, or a manager, has some of these as methods.
ARRAYS = words("Array RawArray Value RawValue")
BLOCKS = words("SharedMemory ShareableList")
MAPPED = ("torch.from_file", "torch.UntypedStorage.from_file", "mmap.mmap")
WRITES = ("write", "write_byte")  # of a mapped file, or of none
# What gives the same memory under another name.
HANDS_ON = words(
    "get_obj get_lock buf frombuffer as_array from_buffer ndarray asarray as_tensor from_numpy view view_as reshape",
    "numpy share_memory_ data detach T ravel squeeze unsqueeze cast memoryview __enter__",
)
# Where processes meet: whoever names one, says something by it.
POINTS = {each for each in MEETING_POINTS if each.startswith("multiprocessing.")}
POINTS -= {f"multiprocessing.{each}" for each in ARRAYS}
SIZES = words("shape size dtype numel nbytes name ndim dim element_size close unlink acquire release")
AUGMENTS = re.compile(r"torchvision\.transforms.*\.Random|albumentations\.|imgaug\.")
Part = tuple[Module, ast.AST]


def loads_with_workers(module: Module) -> Iterator[tuple[ast.expr, str, Call | None]]:
    """Where a file names DataLoader, or one derived from it, and may give it workers."""
    for node, name in mentions(module, [LOADER, *LOADERS]):
        parent = module.parents[node]
        call = Call(parent, LOADER) if isinstance(parent, ast.Call) and parent.func is node else None
        if not (is_type_test(module, node) or call and is_without(module, call, NO_WORKERS)):
            yield node, name, call


def is_without(module: Module, call: Call, arguments: tuple[tuple[int, str, object], ...]) -> bool:
    """Whether a call gives none of these arguments, or what they are without it: `sampler = None` above it, too."""
    given = ((call.argument(place, name), default) for place, name, default in arguments)
    values = ((node and module.value(node), default) for node, default in given)
    return not call.may_have_more and all(
        value is None or isinstance(value, ast.Constant) and value.value == default
        for value, default in values
    )


class Shared:
    """Memory that a call makes for several processes: the names that it goes by, who fills it, and who looks at it."""

    def __init__(self, module: Module, call: Call) -> None:
        self.module, self.call = module, call
        self.program = module.program
        self.names = {*_kept_as(module, call)}
        if _last(call) in BLOCKS:  # other processes find it by a name of the system's
            for home, other in self.program.calls:
                self.names |= {*_kept_as(home, other)} if _last(other) in BLOCKS else set()
        self.is_cast = False  # whether it goes by another kind of object, too
        while (more := {*self._other_names()}) - self.names:
            self.names |= more

    @property
    def filled_by_workers_and_read(self) -> bool:
        if self.call.name in POINTS:
            is_filled = any(self._is_in_worker(*each) for each in self._mentions())
        else:
            is_filled = any(self._is_filled(*each) for each in _worker_code(self.program))
        return is_filled and any(self._is_read(*each) for each in self._mentions())

    @property
    def answers_on_rank0(self) -> bool:
        """Whether questions to rank 0's are all that is done with it: `seen[i]`, `seen.value`, `queue.get()`."""
        name = self.call.name or self.call.method
        is_whole = isinstance(self.module.parents[self.call.node], (ast.Assign, ast.AnnAssign, ast.Return))
        has_answers = name.rpartition(".")[2] in ARRAYS or name in POINTS
        return has_answers and is_whole and not self.is_cast

    def _other_names(self) -> Iterator[str]:
        for module, node in self._mentions():
            whole, _ = self._whole(module, node)
            self.is_cast |= whole is not node and not isinstance(whole, ast.keyword)
            yield from _given_to(module, whole)

    def _mentions(self) -> Iterator[tuple[Module, ast.expr]]:
        for module in self.program.modules:
            for name in self.names:
                for node in module.by_word.get(name, ()):
                    if isinstance(node.ctx, ast.Load):
                        yield module, node

    def _whole(self, module: Module, node: ast.AST) -> tuple[ast.AST, ast.AST]:
        """The largest expression that is the same memory, and what that stands in."""
        while True:
            parent = module.parents[node]
            match parent:
                case ast.Attribute(attr=attr) if attr in HANDS_ON:
                    pass
                case ast.Call(func=func) if last_name(func) in HANDS_ON:
                    pass
                case ast.Tuple() | ast.List() | ast.Dict() | ast.keyword() | ast.Starred():
                    pass
                case _:
                    return node, parent
            node = parent

    def _is_in_worker(self, module: Module, node: ast.AST) -> bool:
        return any((module, each) in _worker_code(self.program) for each in module.around(node))

    def _is_filled(self, module: Module, function: ast.AST) -> bool:
        for node in ast.walk(function):
            target = changed(module, node)
            if isinstance(node, ast.AugAssign):
                target = node.target
            elif isinstance(node, ast.Call) and last_name(node.func) in WRITES:
                target = node.func.value if isinstance(node.func, ast.Attribute) else None
            elif target is node and isinstance(target, (ast.Attribute, ast.Subscript)):
                target = target.value  # `self.seen = x` gives the name to something else
            out = Call(node, None).argument(None, "out") if isinstance(node, ast.Call) else None
            said = (each for code in (target, out) for each in inside(code, ast.Name, ast.Attribute))
            if any(last_name(each) in self.names for each in said):
                return True
        return False

    def _is_read(self, module: Module, node: ast.expr) -> bool:
        """Whether the main flow looks at what is in it."""
        if self._is_in_worker(module, node) or not self.program.reach.runs(module, node):
            return False
        whole, parent = self._whole(module, node)
        match parent:
            case (
                ast.Assign()
                | ast.AnnAssign()
                | ast.withitem()
                | ast.Expr()
                | ast.Compare(ops=[ast.Is() | ast.IsNot()])
            ):
                return False
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                return isinstance(module.parents[parent], ast.AugAssign)
            case ast.Attribute(attr=attr):
                around = module.parents[parent]
                is_done = isinstance(around, ast.Call) and isinstance(module.parents[around], ast.Expr)
                return attr not in SIZES and not (is_done and changed(module, around) is not None)
            case ast.Call(func=func):
                is_handed = (
                    bool({*_parameters(module, parent, whole)}) or module.name(func) == "functools.partial"
                )
                return not (
                    is_handed
                    or last_name(func) in ("len", *HANDS_ON)
                    or module.name(func) in (LOADER, *LOADERS)
                )
        return True


def _last(call: Call) -> str:
    """`Array` of `multiprocessing.Array(...)`, and of a context's; nothing of what other libraries have."""
    name = call.name or ""
    return name.rpartition(".")[2] if name.startswith("multiprocessing.") else "" if name else call.method


def shared_with_workers(module: Module) -> Iterator[Shared]:
    """The memory of a file that workers of loaders fill and the main flow looks at."""
    if not _has_workers(module.program):
        return
    for call in module.calls:
        is_known = call.name in MAPPED or call.name in POINTS
        if is_known or _last(call) in ARRAYS | BLOCKS or call.method == "share_memory_":
            shared = Shared(module, call)
            if shared.filled_by_workers_and_read:
                yield shared


@lru_cache(maxsize=1)
def _has_workers(program: Program) -> bool:
    return any(True for module in program.modules for _ in loads_with_workers(module))


@lru_cache(maxsize=1)
def _worker_code(program: Program) -> frozenset[Part]:
    """The functions that may run in workers: of data sets, transforms, collate functions, and what these call."""
    begin: list[Part] = [
        (module, node)
        for name in RUN_IN_WORKERS
        for module, node in program.methods_named.get(name, ())
        if not _is_sampler(module, node)
    ]
    for module, call in program.calls:
        for given in call.node.keywords:
            if given.arg in HANDED_TO_LOADERS:
                begin += program.functions_given(module, given.value)
    return frozenset(
        part for each in begin for part in program.closure(*each) if isinstance(part[1], FUNCTIONS)
    )


def drawn_by_loading(program: Program) -> str | None:
    """A stream that is drawn from where a loader without workers loads; None: there is none, or nothing draws."""
    loads = [
        (module, call)
        for module, call in program.calls
        if {LOADER, *LOADERS} & {call.name, *bases_in_libraries(module, call.name)}
        and is_without(module, call, NO_WORKERS)
    ]
    if any(not is_without(*load, IN_ORDER) for load in loads):
        return "torch"  # a sampler begins by it
    streams = (stream for part in _worker_code(program) for stream in draws(*part))
    names = (name for module in program.modules for name in module.mentions if AUGMENTS.match(name))
    return next(chain(streams, names), None) if loads else None


def _is_sampler(module: Module, method: ast.AST) -> bool:
    """Whether a method is one of a sampler, which the main flow runs."""
    owner = module.parents[method]
    return any("Sampler" in last_name(base) for _, base in module.program.bases(module, owner))


def _kept_as(module: Module, call: Call) -> Iterator[str]:
    """The names that what a call makes is kept in, or handed on by."""
    if call.method == "share_memory_":
        yield from _names_of(module, call.node.func.value)  # type: ignore[attr-defined]
    yield from _given_to(module, call.node)
    for each in module.around(call.node):
        if not isinstance(each, (ast.expr, ast.keyword)):
            break
        yield from _given_to(module, each)


def _given_to(module: Module, value: ast.AST) -> Iterator[str]:
    """The names that a value gets where it stands."""
    match parent := module.parents[value]:
        case ast.Assign(targets=targets):
            parts = [part for each in targets for part in getattr(each, "elts", [each])]
            yield from filter(None, map(last_name, parts))
        case ast.AnnAssign(target=target) | ast.withitem(optional_vars=ast.expr() as target):
            yield from filter(None, [last_name(target)])
        case ast.Call():
            yield from _parameters(module, parent, value)
        case ast.Return():
            yield from _returned_to(module, parent)


def _names_of(module: Module, node: ast.expr) -> Iterator[str]:
    """What an object is called, and in a loop over `counts.values()` what it is a part of."""
    yield from filter(None, [last_name(node)])
    for binding in module.bindings(node) if isinstance(node, ast.Name) else ():
        whole = binding.node if binding.how is Binds.ITEM else None
        while isinstance(whole, (ast.Call, ast.Attribute, ast.Subscript)):
            if name := last_name(whole):
                yield name
            whole = whole.func if isinstance(whole, ast.Call) else whole.value
        yield from filter(None, [last_name(whole)])


def _returned_to(module: Module, node: ast.Return) -> Iterator[str]:
    """The names that what a function returns is kept in."""
    function = module.function_around(node)
    for home, call in module.program.calls_of(module, function) if function else ():
        statement = home.statement(call.node)
        if isinstance(statement, ast.Assign):
            yield from filter(None, map(last_name, statement.targets))


def _parameters(module: Module, call: ast.Call, given: ast.AST) -> Iterator[str]:
    """The parameter by which a function of the program, or one that is not known, is handed a thing."""
    if isinstance(given, ast.keyword) and given.arg and module.name(call.func) is None:
        yield given.arg
    home, function = module.program.called(module, call.func) or (module, None)
    taken = home.parameter(function, call, given) if isinstance(function, FUNCTIONS) else None
    yield from [taken.arg] if taken else ()
