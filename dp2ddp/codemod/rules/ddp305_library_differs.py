"""Say where a library trains otherwise on ranks.

A hazard where a Trainer trains and its arguments do not say `dataloader_drop_last=True`, and for arguments that
make gradients other ones; a note for random numbers that are drawn rank by rank, and for hidden states of models
that DataParallel wraps.

DataParallel takes the last, short batch of an epoch as it is. Ranks get batches of one length: rows that were
there before count twice. The rest was measured with transformers 5.24.

Where the number of rows is a multiple of the batch of all GPUs, none is short: accept it. With
`dataloader_drop_last=True` neither run has it; no evaluation has its last batch then, either.

docs/hf_trainer.md.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.wrapping_libraries import (
    COLLATORS,
    COUPLING,
    DIFFERENT,
    DRAWN,
    DROPS,
    GATHERS,
)
from dp2ddp.codemod.looks.hidden_wraps import HiddenWrap, library_wraps
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import constant
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags, notes

DRAWS = ("random.", "numpy.random.", "torch.rand", "torch.bernoulli")
SETTINGS = ("Arguments", "Config", "Trainer")  # what a Trainer is told with
FILLED = (
    "the last batch of an epoch is filled up on ranks, where it is short, with rows that were there before; "
    "DataParallel takes it as it is"
)
LAST_BATCH = Reason(
    "last-batch-filled",
    FILLED,
    f"say {DROPS}=True: no run has it then, no evaluation either; or accept it where none is short",
)
LAST_OF_STREAM = Reason(
    "last-of-stream-filled",
    FILLED,
    f"end the stream at a multiple of all GPUs' batch ({DROPS} does nothing there), and accept it",
)
COUPLED = Reason(
    "loss-compares-rows",
    "this loss compares rows with each other: those of all GPUs under DataParallel, of one on ranks",
    f"say {GATHERS}=True, where it has that; or accept it: fewer negatives",
)
CAPTURED = ("output_hidden_states", "output_attentions")  # what transformers' models and configs are given
CAPTURING_HOOKS = Reason(
    "capturing-hooks",
    "since transformers 5, each forward under DataParallel adds hooks for this, and hidden states hold layers twice: "
    "call the model once before it is wrapped",
)


class LibraryDiffers(Rule):
    everywhere = True
    examples = (
        flags("""
            # is filled up
            # times too large
            from transformers import Trainer, TrainingArguments
            args = TrainingArguments("out", num_train_epochs=3, label_smoothing_factor=0.1)
            Trainer(model, args, train_dataset=data).train()
        """),
        notes("""
            # rank by rank
            from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments
            args = TrainingArguments("out", dataloader_drop_last=True)
            Trainer(model, args, DataCollatorForLanguageModeling(words), data).train()
        """),
        Untouched("""
            from transformers import Trainer, TrainingArguments
            args = TrainingArguments("out", dataloader_drop_last=True)
            Trainer(model, args, train_dataset=data).train()
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if find_wraps(module.program):
            yield from (Note(each, CAPTURING_HOOKS) for each in _captured(module))
        wraps = library_wraps(module.program)
        if not wraps or not any("train" in each.by_word for each in module.program.modules):
            return
        for wrap in (each for each in wraps if each.module is module):
            yield from _last_batch(wrap)
        for call in module.calls:
            yield from _of_call(module, call)


def _captured(module: Module) -> Iterator[ast.AST]:
    """Where a model of transformers is told to give what it catches by hooks."""
    given = (each.value for each in module.all(ast.keyword) if each.arg in CAPTURED)
    later = (each.node for name in CAPTURED for each in module.attributes.get(name, ()))
    if any(name.startswith("transformers.") for name in module.mentions):
        yield from (each for each in (*given, *later) if each and constant(each) is True)


def _of_call(module: Module, call: Call) -> Iterator[Finding]:
    tells = (call.name or "").endswith(SETTINGS) or call.method == "train"
    is_own = any(wrap.call and wrap.call.node is call.node for wrap in library_wraps(module.program))
    for given in call.node.keywords if tells or is_own else ():
        differs = DIFFERENT.get(given.arg or "")
        if differs and constant(given.value) not in (differs.usual, None):
            because = differs.because.of(argument=given.arg)
            yield Hazard(given, because) if because.advice else Note(given, because)
    if COUPLING.fullmatch(call.name or "") and constant(call.argument(None, GATHERS)) is not True:
        yield Hazard(call.node, COUPLED)
    collator = COLLATORS.get((call.name or "").rpartition(".")[2])
    if collator and constant(call.argument(1, "mlm")) is not False:
        yield Note(call.node, collator)
    function = module.function_around(call.node)
    if (call.name or "").startswith(DRAWS) and getattr(function, "name", "") in ("__getitem__", "__call__"):
        yield Note(call.node, DRAWN)


def _last_batch(wrap: HiddenWrap) -> Iterator[Finding]:
    given = wrap.call.argument(1, "args") if wrap.call else None
    origins = wrap.module.program.flow.origins(wrap.module, given) if given is not None else ()
    made = [(home, each) for home, each in origins if isinstance(each, ast.Call)]
    streams = _streams(wrap.module.program)
    if streams or not made or not all(_drops(home.program, each) for home, each in made):
        here = (each for home, each in made if home is wrap.module)
        yield Hazard(next(here, wrap.node), LAST_OF_STREAM if streams else LAST_BATCH)


def _drops(program: Program, call: ast.Call) -> bool:
    given = Call(call, None).argument(None, DROPS)
    later = (binding.node for _, binding in program.attributes.get(DROPS, ()))
    return any(constant(each) is True for each in (given, *later))


def _streams(program: Program) -> bool:
    """Whether data may come from a stream: its last batch is filled up, whatever the arguments say."""
    return any("torch.utils.data.IterableDataset" in module.mentions for module in program.modules) or any(
        call.method == "to_iterable_dataset" or constant(call.argument(None, "streaming")) is True
        for _, call in program.calls
    )
