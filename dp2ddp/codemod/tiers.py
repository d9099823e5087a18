"""Tiers of helpers: the smallest that a script is proven to need, and what keeps it from a smaller one.

- *plain* (templates/plain.py): about a hundred lines, in which torch's DistributedDataParallel can be seen at work.
- *lean* (templates/lean.py beside it): gradients are summed inside the autograd graph, for whatever backward does.
- *full*: the other templates, for whatever forward does, and for large batches and outputs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise

from dp2ddp.codemod.choices import FULL, LEAN, PLAIN, TIERS
from dp2ddp.codemod.edits import PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.handles import is_only_called
from dp2ddp.codemod.facts.iterations import catches
from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.facts.ordinary import (
    beyond_lean,
    beyond_plain,
    draws_beside_models,
    trains,
)
from dp2ddp.codemod.facts.pickled import saved_wrapper, wrappers_handed_over
from dp2ddp.codemod.facts.script import CallSite
from dp2ddp.codemod.facts.sharing import OwnSampleMemory, changes_of_samplers
from dp2ddp.codemod.facts.sizes import costly, lies_in_memory
from dp2ddp.codemod.facts.uses import Stopper
from dp2ddp.codemod.plan import Plan
from dp2ddp.codemod.strategy import (
    FOLLOWED,
    HELPERS,
    ONCE,
    OWN,
    SHARED,
    Choice,
    Strategy,
)

# Kinds of effects.
OPENS = ("open", "path open", "log file")
MAKES = ("tracker", "writer", "opener", "read and written")
# Of a SummaryWriter: what ranks > 0 could not say.
WRITER_KNOWS = {
    *("log_dir", "logdir", "get_logdir", "file_writer", "all_writers", "default_bins", "purge_step"),
    *("max_queue", "flush_secs", "filename_suffix"),
}
# By which rank 0 alone does something for all, which wait for it, and would not hear of an error.
UNHEARD = {
    *("open_on_rank_zero", "object_on_rank_zero", "tracker_on_rank_zero", "rank_zero_first"),
    "write_on_rank_zero",
}


def choose_tier(
    facts: Facts,
    strategy: Strategy,
    plans: Mapping[Facts, Plan],
    option: str | None,
    against_lean: Iterable[str] = (),
) -> Choice:
    """The smallest that is proven, or the one that the user asks for; `against_lean`: what the caller knows.

    A smaller one that is right, and only slower, is taken where it is asked for.
    """
    right = _smallest(facts, strategy, chain(_against_lean(facts, strategy, plans), against_lean))
    slow = next(_with_places(facts, costly(facts.training_script)), None) if right.value != FULL else None
    proven = Choice(FULL, f"{slow}; right and slower: --tier {right.value}") if slow else right
    if option is None or option == proven.value:
        return proven
    if TIERS.index(option) > TIERS.index(proven.value):
        return Choice(option, f"asked for ({proven.value} is proven)")
    if TIERS.index(option) >= TIERS.index(right.value):
        return Choice(option, f"asked for; full is faster: {slow}")
    return Choice(option, f"asked for, not proven: {right.because}", forced=True)


def _smallest(facts: Facts, strategy: Strategy, against_lean: Iterator[str]) -> Choice:
    """The smallest tier that is right."""
    stopper = next(against_lean, None)
    if stopper:
        return Choice(FULL, f"not lean: {stopper}")
    stopper = next(_against_plain(facts, strategy), None)
    if stopper:
        return Choice(LEAN, f"not plain: {stopper}")
    return Choice(
        PLAIN, "one model is wrapped, along dim 0; one forward and one backward a step, and nothing unusual"
    )


def with_tier(facts: Facts, strategy: Strategy, tier: Choice) -> Strategy:
    """The choices where the helpers are of a tier."""
    if tier.value == FULL:
        return replace(strategy, helpers=tier)
    data = _data(facts)
    return replace(
        strategy,
        data=data,
        join=_GATHERED,
        gradients=_gradients(facts, strategy, tier),
        shares=data.value == ONCE,
        helpers=tier,
        device_stream=_device_stream(facts) if tier.value == LEAN else OWN,
        model_draws=facts.training_script.model_may_draw,
    )


def _device_stream(facts: Facts) -> str:
    """How lean helpers have the script's random numbers of a device the same on all ranks."""
    if any(draws_beside_models(facts.training_script)):
        return FOLLOWED
    return SHARED if facts.training_script.device_draws and not facts.training_script.model_draws else OWN


_GATHERED = Choice(
    "outputs", "each output is gathered on all ranks: the loss and all behind it see the whole batch"
)


def _gradients(facts: Facts, strategy: Strategy, tier: Choice) -> Choice:
    if tier.value == LEAN:
        return Choice("graph", tier.because)
    return strategy.gradients if trains(facts.program) else Choice("reducer", "nothing is trained")


def _data(facts: Facts) -> Choice:
    calls = [(file, call) for file in facts.files for call in file.shared_loaders]
    if not calls or facts.share_stopper:
        because = facts.share_stopper or "none come from a loader"
        return Choice("replicate", f"every rank loads the whole batches itself: {because}")
    if all(lies_in_memory(file.modules, file.script, call.argument(0, "dataset")) for file, call in calls):
        return Choice(
            "replicate", "every rank makes the whole batches itself: they are parts of tensors in memory"
        )
    return Choice(ONCE, "rank 0 loads each batch, as one process would, and sends it to the others")


def _against_plain(facts: Facts, strategy: Strategy) -> Iterator[str]:
    if strategy.gradients.value != "reducer" and trains(facts.program):
        yield strategy.gradients.because
    yield from _with_places(facts, beyond_plain(facts.training_script))


def _against_lean(facts: Facts, strategy: Strategy, plans: Mapping[Facts, Plan]) -> Iterator[str]:
    if strategy.forward.value != "module":
        yield strategy.forward.because
    if strategy.data.value == "feed":
        yield strategy.data.because
    loads_once = _data(facts).value == ONCE
    for file, plan in plans.items():
        yield from _about_plan(file, plan)
        if loads_once:
            yield from _about_loading(file)
    yield from _with_places(facts, beyond_lean(facts.training_script))


def _with_places(facts: Facts, stoppers: Iterator[Stopper]) -> Iterator[str]:
    for stopper in stoppers:
        yield f"{stopper.why} ({facts.program.where(stopper.node)})"


def _about_plan(file: Facts, plan: Plan) -> Iterator[str]:
    """Edits that the smaller tiers cannot carry out."""
    for lift in plan.lifts:
        if lift.helper not in HELPERS[LEAN]:
            yield f"it needs {lift.helper}: {lift.because}"
    for planned in plan.edits:
        edit = planned.finding
        if isinstance(edit, (PassTo, Replace)) and _is_unheard(edit) and _is_caught(file, edit.node):
            yield f"what rank 0 does alone may fail, and that is caught ({file.script.where(edit.node)})"
    for call in file.shared_loaders:
        if call.name != LOADER and not _only_iterates(file, call):
            yield f"a loader is of a class of its own ({file.script.where(call.node)})"
    for effect in file.effects:
        if effect.made:
            yield f"what writes is of a class of its own ({file.script.where(effect.call.node)})"
        if effect.kind in MAKES and not (
            is_only_called(file.script, effect.call) or _answers_nothing(file, effect.call)
        ):
            yield f"what writes is used in another way ({file.script.where(effect.call.node)})"
        if effect.kind in OPENS and _may_be_read(effect.call):
            yield f"a file is read and written ({file.script.where(effect.call.node)})"
        if effect.kind == "save" and saved_wrapper(
            file.script, effect.call.argument(0, "obj"), file.all_wraps
        ):
            yield f"the wrapped model is saved as a whole ({file.script.where(effect.call.node)})"
    for home, saved in wrappers_handed_over(file.script, file.modules, file.all_wraps):
        yield f"the wrapped model is saved as a whole ({home.where(saved)})"


def _about_loading(file: Facts) -> Iterator[str]:
    """What only the rank that loads would know."""
    samples = OwnSampleMemory(file.script, file.places, (), file.modules.scripts, file.reach)
    for kept in samples.kept():
        yield f"loading changes `{kept.name}` ({file.script.where(kept.node)})"
    for changed in changes_of_samplers(file.script, file.shared_loaders):
        yield f"a sampler changes `{file.script.text_of(changed)}` ({file.script.where(changed)})"


def _answers_nothing(file: Facts, made: CallSite) -> bool:
    """A SummaryWriter, whose methods give nothing back, where nobody asks for what it knows: it may go anywhere."""
    read = {node.attr for node in file.training_script.attributes} & WRITER_KNOWS
    in_block = isinstance(file.script.scopes.parents[made.node], ast.withitem)
    return getattr(made.node.func, "attr", made.name or "").endswith("SummaryWriter") and not (
        read or in_block
    )


def _only_iterates(file: Facts, loader: CallSite) -> bool:
    """Whether a loader's class has no methods of its own but for how it is made and iterated."""
    home, definition = file.modules.definition(file.script, loader.node.func) or (file.script, None)
    if not isinstance(definition, ast.ClassDef):
        return False
    statements = [part for part in definition.body if not isinstance(part, (ast.Expr, ast.Pass))]
    names = {getattr(part, "name", "") for part in statements}
    bases = [home.scopes.name(base) for base in definition.bases]
    return bases == [LOADER] and names <= {"__init__", "__iter__", "__len__"}


def _is_unheard(edit: PassTo | Replace) -> bool:
    """Whether an error of rank 0's would not be raised on the other ranks."""
    code = edit.helper if isinstance(edit, PassTo) else edit.code
    return code.partition("(")[0].rstrip("_") in UNHEARD


def _is_caught(file: Facts, node: ast.AST) -> bool:
    """In a `try` that goes on: then rank 0 would go on, and the others would wait for it."""
    return any(
        catches(file.script, around) and below in getattr(around, "body", ()) and not _is_missing(around)
        for below, around in pairwise((node, *file.script.scopes.ancestors(node)))
    )


def _is_missing(around: ast.AST) -> bool:
    """`except ImportError:`, which all ranks meet at the import."""
    types = [handler.type for handler in getattr(around, "handlers", ())]
    missing = ("ImportError", "ModuleNotFoundError")
    return bool(types) and all(isinstance(kind, ast.Name) and kind.id in missing for kind in types)


def _may_be_read(opened: CallSite) -> bool:
    """`open(path, "w+")`: what ranks > 0 have instead holds nothing to read."""
    modes = [*opened.node.args, *(keyword.value for keyword in opened.node.keywords if keyword.arg == "mode")]
    texts = (node.value for mode in modes for node in ast.walk(mode) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and "+" in text and set(text) <= set("rwaxbt+") for text in texts)
