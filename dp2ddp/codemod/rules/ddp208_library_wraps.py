"""Say where a library wraps the model by itself, and what takes the place of that.

Notes at the first use in a file of what wraps without being told (transformers' Trainer, and those of trl,
sentence-transformers and setfit), or by a word (`strategy="dp"`, `idist.auto_model`, `learn.to_parallel()`): how
the model is wrapped when the script is started by python and by torchrun, and what to write where torchrun alone
is not enough.

Nobody wrote DataParallel, and several GPUs are one process all the same.

A library that starts DistributedDataParallel by itself keeps the wrap, the loader and its own files; what the
script does around it is converted. A hazard where the script wraps by hand as well.

docs/hf_trainer.md.
"""

import ast
import shlex
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.looks.hidden_wraps import HiddenWrap, hidden_wraps, library_wraps, shows_one_gpu
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, constant
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags, notes

OVERRIDES = {
    "_wrap_model": "wraps the model in its own way, under DataParallel as on ranks",
    "training_step": "takes the step in its own way: on ranks it gets the rows of one GPU, not of all",
    "compute_loss": "makes the loss in its own way: ranks average theirs, which is another mean where rows weigh apart",
    "get_train_dataloader": "makes its own loader: on ranks each must get its share of every batch",
}
PLACED = Reason(
    "device-map",
    "device_map places the model: under python no DataParallel wraps what lies on several GPUs, and ranks refuse it; "
    'take it out, or say {"": int(os.environ.get("LOCAL_RANK", 0))}',
)
ONE_GPU = Reason(
    "one-gpu-visible", "one GPU is visible here, so {name} does not wrap the model in DataParallel"
)
TWICE = Reason(
    "wraps-twice",
    "{name} wraps the model by itself: beside nn.DataParallel, each rank would wrap once more",
    "take nn.DataParallel out, then convert again",
)
BY_ITSELF = Reason(
    "wraps-by-itself",
    "{name} wraps the model by itself ({since}): started by python with several GPUs, in nn.DataParallel, one process",
)
STARTS_DDP = Reason(
    "starts-ddp",
    "started by torchrun, in DistributedDataParallel, one process a GPU: by the same lines, with the same batch "
    "size for each GPU",
)
STILL_WRAPS = Reason(
    "ranks-wrap-too",
    "started by torchrun, each rank would wrap it for all GPUs, as long as these lines stand here",
)
INSTEAD = Reason(
    "write-instead", "write in its place: {lines}; then: dp2ddp verify {script} --converted YOURS.py"
)
OVERRIDDEN = Reason("own-method", "its {method} {does}; dp2ddp verify tells whether it does")


class LibraryWraps(Rule):
    everywhere = True
    examples = (
        notes("""
            # transformers.Trainer wraps the model by itself
            # its training_step takes the step in its own way
            # write in its place: strategy="ddp"
            from lightning.fabric import Fabric
            from transformers import Trainer
            class Mine(Trainer):
                def training_step(self, model, inputs, count=None):
                    return loss
            Mine(model).train()
            fabric = Fabric(devices=2, strategy="dp")
        """),
        flags("""
            # would wrap once more
            import torch
            from transformers import Trainer
            Trainer(torch.nn.DataParallel(model)).train()
        """),
        Untouched("""
            from transformers import Trainer
            def show(trainer: Trainer): ...
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        own = [wrap for wrap in hidden_wraps(module.program) if wrap.module is module]
        for wrap in {wrap.library.name: wrap for wrap in reversed(own)}.values():
            yield from _notes_of(wrap)
        for home, kind in {wrap.own_class for wrap in hidden_wraps(module.program) if wrap.own_class}:
            yield from _overrides(kind) if home is module else ()
        for given in module.all(ast.keyword) if library_wraps(module.program) else ():
            if given.arg == "device_map" and constant(given.value):
                yield Note(given, PLACED)


def _notes_of(wrap: HiddenWrap) -> Iterator[Finding]:
    name, program = wrap.library.name, wrap.module.program
    if shows_one_gpu(program):
        yield Note(wrap.node, ONE_GPU.of(name=name))
        return
    if any(not each.is_single for each in find_wraps(program)):
        yield Hazard(wrap.node, TWICE.of(name=name))
        return
    since = f"from {wrap.library.since} on" + (f"; {wrap.library.refused}" if wrap.library.refused else "")
    yield Note(wrap.node, BY_ITSELF.of(name=name, since=since))
    if wrap.library.starts_ddp:
        yield Note(wrap.node, STARTS_DDP)
        return
    yield Note(wrap.node, STILL_WRAPS)
    lines, script = "; ".join(wrap.library.instead), shlex.quote(program.entry.source.name)
    yield Note(wrap.node, INSTEAD.of(lines=lines, script=script))


def _overrides(definition: ast.ClassDef) -> Iterator[Finding]:
    for method in definition.body:
        if isinstance(method, NAMED_FUNCTIONS) and method.name in OVERRIDES:
            yield Note(method, OVERRIDDEN.of(method=method.name, does=OVERRIDES[method.name]))
