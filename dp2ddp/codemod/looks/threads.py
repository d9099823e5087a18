"""Threads, processes and pools of a script, and a DataLoader's workers: whether rank 0 can have them for all.

It can where everything that they hand to the main flow goes through objects that are asked on rank 0: queues, events,
results. What they change by another way, the other ranks do not see; of workers it is what they share with the main
flow.
"""

import ast
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache
from itertools import chain

from dp2ddp.codemod.knowledge.changing import changed_argument, changes_its_object
from dp2ddp.codemod.knowledge.derived import LOADER, LOADERS
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.uses import bases_in_libraries, is_foreign
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, constant, handed, inside, places, root_name, stored_names
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.source.parsing import nodes_in

PREFETCHES = ("prefetch_generator.BackgroundGenerator",)
BY_FUNCTION = ("_thread.start_new_thread", "_thread.start_new", "_thread.start_joinable_thread")
THREADS = ("threading.Thread", "threading.Timer", *BY_FUNCTION, *PREFETCHES)
POOLS_OF_THREADS = (
    *("multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool"),
    "concurrent.futures.ThreadPoolExecutor",
)
POOLS = (
    *POOLS_OF_THREADS,
    *("multiprocessing.Pool", "multiprocessing.pool.Pool", "concurrent.futures.ProcessPoolExecutor"),
    *(
        "multiprocessing.Manager",
        "multiprocessing.managers.SyncManager",
        "multiprocessing.managers.BaseManager",
    ),
    "multiprocessing.managers.SharedMemoryManager",
)
STARTERS = (*THREADS, "multiprocessing.Process", *POOLS)
_SHARED = ("Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier")
_OF_PROCESSES = ("Pipe", "Queue", "SimpleQueue", "JoinableQueue", "Value", "Array", *_SHARED)
MEETING_POINTS = {
    *(f"queue.{name}" for name in ("Queue", "LifoQueue", "PriorityQueue", "SimpleQueue")),
    *(f"threading.{name}" for name in _SHARED),
    *(f"multiprocessing.{name}" for name in _OF_PROCESSES),
}
BY_CONTEXT = {"Process", "Pool"}  # of `multiprocessing.get_context("spawn")`
WAITS_FOR_MANY = (
    "concurrent.futures.as_completed",
    "concurrent.futures.wait",
    "multiprocessing.connection.wait",
)
QUEUE_METHODS = {"get", "get_nowait", "put", "put_nowait", "set", "clear", "shutdown", "task_done"}
RUNS_IN_POOL = {"submit", "map", "imap", "imap_unordered", "apply_async", "map_async", "starmap"}
NO_WORKERS = ((5, "num_workers", 0),)
# What makes memory that processes share. A context, or a manager, has some of these as methods.
SHARING = words("Array RawArray RawValue SharedMemory ShareableList")
MAPPED = ("torch.from_file", "torch.UntypedStorage.from_file", "mmap.mmap")
Part = tuple[Module, ast.AST]
HAND_OVER = (
    "hand over by a queue alone (queue.Queue; from process to process multiprocessing.Queue), with a random generator "
    "of its own; or load with a DataLoader"
)
UNFOLLOWED = Reason("thread-unfollowed", "{starter} runs what cannot be followed", HAND_OVER)
RUNS_MODEL = Reason("thread-runs-model", "{starter} runs the wrapped model beside the main flow", HAND_OVER)
CHANGES = Reason("thread-changes", "{starter} changes `{what}`, which the other ranks do not see", HAND_OVER)
DRAWS = Reason(
    "thread-draws", "{starter} draws from {stream}, as the main flow may, in no fixed order", HAND_OVER
)


def is_starter(module: Module, call: Call) -> bool:
    """Whether a call makes a thread, a process or a pool, also of a class of the program."""
    if call.name in STARTERS or call.name is None and call.method in BY_CONTEXT:
        return True
    home, made = module.definition(call.node.func) or (module, None)
    return any(other.name(base) in STARTERS for other, base in module.program.bases(home, made))


def why_not(module: Module, call: Call) -> Reason | None:
    """Why a thread cannot be left to rank 0 (None: it can)."""
    starter = f"{call.name or call.method}()"
    target = _target(module, call)
    if target is None:  # a pool: what runs in it is handed over by its results
        return None
    if not isinstance(target[1], (*FUNCTIONS, ast.ClassDef)):
        return UNFOLLOWED.of(starter=starter)
    parts = list(module.program.closure(*target))
    if any(_names_model(*part) for part in parts):
        return RUNS_MODEL.of(starter=starter)
    if call.name == "multiprocessing.Process" or call.method == "Process":
        return None  # it has a memory and streams of its own
    leaks = chain(_leaks(parts, target[1]), _filled_arguments(*target, made=_made_for(call, target)))
    if leak := next(leaks, None):
        return CHANGES.of(starter=starter, what=leak)
    streams = {stream for part in parts for stream in _draws(*part)}
    return DRAWS.of(starter=starter, stream=min(streams)) if streams else None


def goes_through(module: Module, call: Call) -> bool:
    """Whether a thread goes through something that it is given, as through a loader: `for item in self.generator`."""
    home, target = _target(module, call) or (module, None)
    parts = home.program.closure(home, target) if isinstance(target, (*FUNCTIONS, ast.ClassDef)) else ()
    loops = (each for _, part in parts for each in inside(part, ast.For))
    return call.name in PREFETCHES or any(root_name(each.iter) for each in loops)


def _draws(module: Module, node: ast.AST) -> Iterator[str]:
    """The streams of the process that a piece of code draws from."""
    for name in (call.name for call in module.calls_in(node)):
        if name and does(name) is Does.DRAW:
            yield next(home for home in ("torch", "numpy.random", "random") if name.startswith(f"{home}."))


def _target(module: Module, call: Call) -> Part | None:
    """The function that it runs, or the class that is a thread; None for a pool."""
    own = module.definition(call.node.func)
    if own is not None:
        return own
    place = {"threading.Timer": 1, **dict.fromkeys(BY_FUNCTION, 0)}.get(call.name or "")
    given = call.argument(place, "target" if place is None else "function")
    if given is None:
        return None
    return (module, given) if isinstance(given, ast.Lambda) else module.definition(given) or (module, given)


def leaks_in_pools(module: Module) -> Iterator[tuple[Call, str]]:
    """What functions that are handed to pools change, beside their results: `pool.submit(load, path)`.

    Pools of processes work on copies of what they hand over.
    """
    shares = any(each.name in POOLS_OF_THREADS for _, each in module.program.calls)
    for call in module.calls:
        given = call.argument(0) if call.method in RUNS_IN_POOL and not call.name else None
        if given is None:
            continue
        parts = module.program.functions_given(module, given)
        if shares and not parts and isinstance(given, ast.Attribute) and changes_its_object(given.attr):
            yield call, ast.unparse(given)
        for part in parts:
            leak = next(_leaks(module.program.closure(*part), part[1]), None)
            if leak or shares and (leak := next(_filled_arguments(*part), None)):
                yield call, leak


def _names_model(module: Module, node: ast.AST) -> bool:
    """Whether a function says the name of a wrapped model."""
    wraps = (wrap.module.statement(wrap.node) for wrap in find_wraps(module.program))
    targets = (target for each in wraps if isinstance(each, ast.Assign) for target in each.targets)
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return any(each.id in names for each in inside(node, ast.Name))


def _leaks(parts: Iterable[Part], target: ast.AST) -> Iterator[str]:
    """What the functions change that is not their own; what an object that is a thread sets on itself is.

    Whether `self.out` of `self.out.append(x)` was made by the object, or given to it, is not asked.
    """
    for module, function in parts:
        stored = stored_names(function)
        own = {""} | stored | {each.arg for each in inside(function, ast.arg)} - {"self"}
        declared = [name for each in inside(function, ast.Global) for name in each.names]
        declared += [name for each in inside(function, ast.Nonlocal) for name in each.names]
        yield from (name for name in declared if name in stored)
        for each in _changes(module, function):
            is_own = isinstance(target, ast.ClassDef) and _is_set_on_self(each)
            if root_name(each) not in own and not is_own:
                yield ast.unparse(each)


def _is_set_on_self(changed: ast.expr) -> bool:
    """`self.served += 1`, or `self` of a method that does it."""
    is_set = isinstance(changed, ast.Attribute) and isinstance(changed.ctx, ast.Store)
    return ast.unparse(changed.value if is_set else changed) == "self"  # type: ignore[attr-defined]


def _made_for(call: Call, target: Part) -> set[str]:
    """The parameters of a thread's function whose objects nobody else has: `args=(make(), queue)`."""
    given = call.argument(1 if call.name in BY_FUNCTION else 3, "args")
    values = given.elts if isinstance(given, (ast.Tuple, ast.List)) else []
    pairs = zip(target[0].taken(target[1]), values, strict=False)
    return {taken.arg for taken, value in pairs if isinstance(value, ast.Call)}


def _filled_arguments(
    module: Module, function: ast.AST, seen: Set[ast.AST] = frozenset(), made: Set[str] = frozenset()
) -> Iterator[str]:
    """What a thread's function changes of that which it is given, by itself or by a function that it hands it to."""
    if not isinstance(function, FUNCTIONS):
        return
    seen = seen | {function}
    given = {each.arg for each in places(function)} - {"self", *made} - stored_names(function)
    for node in nodes_in(function):
        match node:
            case ast.Assign(targets=[target], value=source) | ast.For(target=target, iter=source):
                given |= stored_names(target) if root_name(source) in given else set()
    yield from (ast.unparse(each) for each in _changes(module, function) if root_name(each) in given)
    for node in inside(function, ast.Call):
        home, called = module.program.called(module, node.func) or (module, None)
        if isinstance(called, FUNCTIONS) and called not in seen:
            others = [each for each, value in handed(node) if root_name(value) not in given]
            own = (home.parameter(called, node, each) for each in others)
            if len(others) < len(handed(node)):
                yield from _filled_arguments(home, called, seen, {each.arg for each in own if each})


def _changes(module: Module, code: ast.AST) -> Iterator[ast.expr]:
    """The objects that a piece of code changes, also by a method of the program."""
    methods = _changing_methods(module.program)
    return (each for node in nodes_in(code) if (each := _changed(module, node, methods)) is not None)


@lru_cache(maxsize=1)
def _changing_methods(program: Program) -> frozenset[str]:
    """The methods of the program's classes that change the object that they are of."""
    return frozenset(
        name
        for name, methods in program.methods_named.items()
        for home, method in methods
        for other, part in program.closure(home, method)
        for node in ast.walk(part)
        if root_name(_changed(other, node)) == "self"
    )


def _changed(module: Module, node: ast.AST, methods: Set[str] = frozenset()) -> ast.expr | None:
    """The object that a node changes; by one of these methods, too."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return node
    if not isinstance(node, ast.Call):
        return None
    name = module.name(node.func) or ""
    if isinstance(node.func, ast.Attribute):
        method = node.func.attr
        is_own = method in methods and not is_foreign(module, node.func.value)
        if not name and (is_own or changes_its_object(method) and method not in QUEUE_METHODS):
            return node.func.value
        if method == "shuffle" and node.args:  # of a generator
            return node.args[0]
    place = changed_argument(name)
    return node.args[place] if place is not None and place < len(node.args) else None


# --- workers


def loads_with_workers(module: Module) -> Iterator[tuple[ast.expr, str, Call | None]]:
    """Where a file names DataLoader, or one derived from it, and may give it workers."""
    for node, name in mentions(module, [LOADER, *LOADERS]):
        call = module.call_of(node)
        if not (is_type_test(module, node) or call and is_without(module, call, NO_WORKERS)):
            yield node, name, call


def is_without(module: Module, call: Call, arguments: tuple[tuple[int, str, object], ...]) -> bool:
    """Whether a call gives none of these arguments, or what they are without it: `sampler = None` above it, too."""
    given = ((call.argument(place, name), default) for place, name, default in arguments)
    values = ((node and module.value(node), default) for node, default in given)
    return not call.may_have_more and all(
        value is None or constant(value) == default for value, default in values
    )


def is_shared_memory(call: Call) -> bool:
    """Whether it makes memory that workers may fill and the main flow may look at: whether they do is not asked."""
    if call.name in MAPPED:
        return "ACCESS_READ" not in ast.unparse(call.node)
    home, _, last = (call.name or f"multiprocessing.{call.method}").rpartition(".")  # a context's `Array`
    return home.startswith("multiprocessing") and last in SHARING or call.method == "share_memory_"


@lru_cache(maxsize=1)
def has_workers(program: Program) -> bool:
    """Whether a loader may have workers."""
    return any(True for module in program.modules for _ in loads_with_workers(module))


def loads_without_workers(program: Program) -> bool:
    """Whether a loader has no workers: then whoever goes through it draws what its sampler and its data set draw."""
    return any(
        {LOADER, *LOADERS} & {call.name, *bases_in_libraries(module, call.name)}
        and is_without(module, call, NO_WORKERS)
        for module, call in program.calls
    )
