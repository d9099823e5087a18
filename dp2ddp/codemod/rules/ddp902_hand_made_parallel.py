"""Say where a script drives several devices in a way that has no counterpart over the ranks.

A hazard for copies between devices (torch.cuda.comm), for wrappers whose source is not there, and for classes that
are looked up by a name (`getattr(nn, name)`), or may be, where torch.nn itself is handed on (`build(nn, name)`), if a
text of the project, or a file of settings beside it, names DataParallel as a value. A note where nothing names
DataParallel, and nothing else wraps; and for `import_module(name)`, where the text does not tell which modules that
may be: they are not converted, and a file that one writes on ranks beside rank 0 is an error, with its line.

One process drives several devices there. A rank has one device, and what such code does with the others is its own
affair.

Subclasses of DataParallel, its parts, and batch norm that is synchronised between replicas are converted.
`import_module("models." + name)` may be any module of that package: all of them are read.

torch/nn/parallel/comm.py; Python documentation, importlib.import_module.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.derived import CLASSES, DATA_PARALLEL
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.hidden_wraps import STRATEGIES
from dp2ddp.codemod.looks.looked_up import imports_unread, lookups
from dp2ddp.codemod.looks.replicated import PARTS
from dp2ddp.codemod.looks.wraps import find_wraps
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags
from dp2ddp.source.helper_module import IMPORTED

TORCHS = ("DistributedDataParallel", "FullyShardedDataParallel")
PLAIN = "wrap the model in nn.DataParallel instead if its plain behaviour will do, then convert again"
SOURCE = "put its package beside the script (batch norm between replicas is converted), then convert again"
COPIES = Reason("copies-between-devices", "{part}() copies between devices, and a rank has one", PLAIN)
NO_SOURCE = "{name} cannot be read: its source is not among the files here"
UNREAD = Reason("unread-wrapper", NO_SOURCE, PLAIN)
UNREAD_CALLBACK = Reason("unread-callback", NO_SOURCE, SOURCE)
REPLACED = Reason(
    "replaced-for-all",
    "{part} is replaced in torch itself, for all wrapped models",
    "derive a class of your own from nn.DataParallel",
)
UNREAD_MODULE = Reason(
    "unread-module",
    "the name of the module that is imported here stands elsewhere: if nothing else imports it, it was not looked at",
)


class HandMadeParallel(Rule):
    examples = (
        flags("""
            # its source is not among the files here
            from encoding.parallel import DataParallelModel
            net = DataParallelModel(net)
        """),
        flags("""
            # looked up by its name
            import torch.nn as nn
            parser.add_argument("--parallel", default="DataParallel")
            net = getattr(nn, args.parallel)(net)
        """),
        Untouched("""
            from torch import nn
            layers = getattr(nn, f"Conv{n}d"), getattr(nn, kind + "Norm")
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            if does(call.name) is Does.COPY_BY_HAND:
                part = (call.name or "").removesuffix(".apply").rpartition(".")[2]
                yield Hazard(call.node, COPIES.of(part=part))
            elif _is_foreign(module, call):
                name = ast.unparse(call.node.func)
                yield Hazard(call.node, (UNREAD_CALLBACK if "callback" in name else UNREAD).of(name=name))
            elif imports_unread(module, call):
                yield Note(call.node, UNREAD_MODULE)
        for target in module.all(ast.Attribute):
            is_set = isinstance(target.ctx, ast.Store) and module.name(target.value) == DATA_PARALLEL
            if is_set and target.attr not in PARTS:  # which DDP204 looks at
                yield Hazard(target, REPLACED.of(part=module.text(target)))
        is_wrapped = any(find_wraps(module.program))
        for lookup in lookups(module):
            if lookup.is_named:
                yield Hazard(lookup.node, lookup.why)
            elif not is_wrapped:  # who wraps by its name does it there; elsewhere it is nearly always a layer
                yield Note(lookup.node, lookup.why)


def _is_foreign(module: Module, call: Call) -> bool:
    """DataParallelModel, BalancedDataParallel, make_data_parallel, patch_replication_callback of another package."""
    if not isinstance(call.node.func, (ast.Name, ast.Attribute)):
        return False
    name = call.name or ast.unparse(call.node.func)
    last = name.rpartition(".")[2]
    is_torchs = bool(call.name) and name.startswith(("torch.", *IMPORTED)) or last in (*TORCHS, *STRATEGIES)
    is_wrapper = "DataParallel" in last or last == "patch_replication_callback"
    is_function = "data_parallel" in last and "." in (call.name or "")
    if is_torchs or call.name in CLASSES or not (is_wrapper or is_function):
        return False
    return module.definition(call.node.func) is None
