"""DDP713: data that each rank would cut otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.draws import host_stream
from dp2ddp.codemod.facts.entry import is_main_guard
from dp2ddp.codemod.facts.iterations import conditions, iteration_of
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.idiomatic.loading import in_training, read_loaders
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

SEEDS = {
    "torch": of("torch", "manual_seed random.manual_seed"),
    "numpy.random": {"numpy.random.seed"},
    "random": {"random.seed"},
}
SPLITS = {"torch.utils.data.random_split": "torch", "torch.randperm": "torch"}
SPLITS |= {
    "torch.utils.data.dataset.random_split": "torch",
    "sklearn.model_selection.train_test_split": "numpy.random",
}


class UnseededSplit(Rule):
    """Say where ranks would draw different numbers that all of them need.

    ## What it does
    A hazard for random numbers of the host that are drawn without a seed before or beside the training loop:
    `random_split`, `random.shuffle`, `np.random.permutation`, `train_test_split`.

    ## Why
    Each rank would split the data in its own way: it would train on what another one evaluates on.

    ## Safety
    Where the stream is seeded anywhere in the project, and under no condition, all ranks draw alike. What a model
    begins with is sent from rank 0, and needs no seed; what is drawn into it behind the wrap does (`net.apply(init)`).

    ## References
    docs/semantics.md#unseeded; docs/idiomatic.md.
    """

    code = "DDP713"
    name = "idiomatic-unseeded-split"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                import torch
                from torch.utils.data import random_split
                net = torch.nn.DataParallel(net)
                train, test = random_split(data, [900, 100])
            """,
            message="without a seed",
        ),
        Untouched("""
            import torch
            from torch.utils.data import random_split
            torch.manual_seed(0)
            net = torch.nn.DataParallel(net)
            train, test = random_split(data, [900, 100])
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.all_wraps:
            return
        seeded = {stream for stream, names in SEEDS.items() if is_seeded(facts, names)}
        if "torch" not in seeded:
            yield from _shuffled_evaluations(facts)
        for call in facts.script.calls:
            stream = "torch" if _draws_again(facts, call) else _stream(call)
            if stream is None or stream in seeded or facts.places.of(call.node) is not ExecutionPlace.MAIN:
                continue
            if in_training(facts, call.node) or _is_of_sample(facts, call.node):
                continue  # of a rank's own batch, like what a sample draws
            name = call.name or facts.script.text_of(call.node.func)
            yield Hazard(
                call.node,
                f"{name}() draws without a seed: each rank would have other numbers",
                f"set a seed first ({sorted(SEEDS[stream])[0]}), or take the exact style",
            )


def _is_of_sample(facts: Facts, node: ast.AST) -> bool:
    """In a method that a data set calls for a sample: the `__call__` of a transform."""
    functions = (
        parent for parent in facts.script.scopes.ancestors(node) if isinstance(parent, ast.FunctionDef)
    )
    return any(function.name in ("__call__", "__getitem__", "get_params") for function in functions)


def _shuffled_evaluations(facts: Facts) -> Iterator[Hazard]:
    """Loaders that do not train and shuffle: ranks would see other batches, and may decide otherwise by them."""
    for loading in read_loaders(facts):
        if loading.script is facts.script and loading.others and not loading.trains and loading.shuffles:
            yield Hazard(
                loading.call.node,
                "the loader that evaluates shuffles without a seed: each rank would have other batches",
                "let it not shuffle, set a seed first (torch.manual_seed), or take the exact style",
            )


def is_seeded(facts: Facts, names: set[str]) -> bool:
    """Whether a stream is seeded in any case: a seed behind `if args.seed is not None:` may not be set."""
    return any(
        call.name in names and not _is_in_question(script, call.node)
        for script in facts.modules.scripts
        for call in script.calls
    )


def _is_in_question(script: Script, node: ast.AST) -> bool:
    around = conditions(script, node, iteration_of(script, node))
    return around is None or any(
        not is_main_guard(condition) and not _asks_cuda(script, condition.test) for condition, _ in around
    )


def _asks_cuda(script: Script, test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and script.scopes.name(test.func) == "torch.cuda.is_available"


def _draws_again(facts: Facts, call: CallSite) -> bool:
    """`net.apply(init)` behind the wrap: each rank would have begun alike, and draws for itself now."""
    if call.method != "apply" or not isinstance(call.node.func, ast.Attribute):
        return False
    owner = call.node.func.value
    is_wrapped = facts.program.variable(owner) in facts.training.names
    return is_wrapped and not _is_wrapped_later(facts, owner)


def _is_wrapped_later(facts: Facts, owner: ast.expr) -> bool:
    """Whether a wrap of the same model stands further down in the same function: it sends what rank 0 has."""
    script = facts.script
    place, function = script.positions.span(owner).start, script.scopes.function(owner)
    return any(
        script.scopes.function(wrap.call.node) is function
        and script.positions.span(wrap.call.node).start > place
        and script.text_of(owner) in wrap.names
        for wrap in facts.wraps
    )


def _stream(call: CallSite) -> str | None:
    """The stream that all ranks would have to share; a generator or a state of its own is none."""
    name = call.name or ""
    if name in SPLITS:
        own = call.keyword("generator") or call.keyword("random_state")
        return None if own and not _is_none(own.value) else SPLITS[name]
    return host_stream(name)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
