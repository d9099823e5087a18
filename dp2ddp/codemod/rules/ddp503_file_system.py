"""Make, move and remove files once, and ask the outside once.

`os.makedirs(path)` becomes `run_on_rank0(os.makedirs, path)`; `input()` becomes `ask_rank0(input)`: all ranks get
rank 0's answer. So it is for a function that writes, where its answer is used. What nobody has heard of,
and writes by its name (`frame.to_csv(path)`), is called by `write_on_rank0`. A note where something is named after
the script (`Path(__file__).stem`, `sys.argv[0]`): train_ddp.py has another name, unless you convert it in place.

Ranks that make or remove one path at once fail; a fresh name or a temporary folder differs in each.

`write_on_rank0` looks at what it is given when it is called: into a buffer, every rank writes for itself. What
writes by its name and is given nothing is a hazard: nothing here says which file.

docs/semantics.md#folders, docs/semantics.md#clocks.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.looks.mentions import handed_on, handed_to
from dp2ddp.codemod.looks.uses import is_foreign, is_harmless, is_path, is_used
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import constant
from dp2ddp.codemod.model.texts import pieces
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags, notes, rename

BECAUSE = "rank 0 makes this call, once for all ranks"
STANDARD = ("builtins", "sys", "os", "typing", "logging", "warnings", "tempfile")
QUIET = tuple(f"{name}." for name in ("torch", *STANDARD, *TRACKING))
OF_FOLDER = re.compile(r"dirname|parent|pardir|\.\.")
OTHER_NAME = Reason(
    "named-after-script", "a converted copy has a name of its own, and so has what this names after it"
)
UNKNOWN_FILE = Reason("unknown-file", "{code} may write a file: nothing here says which", "give it the path")


class FileSystem(Rule):
    examples = (
        diff("""
              import os
              import shutil
              if not os.path.isdir("out"):
            -     os.makedirs("out", exist_ok=True)
            +     run_on_rank0(os.makedirs, "out", exist_ok=True)
            - copied = shutil.copy("train.py", "out")
            - answer = input()
            - fig.savefig("loss.png")
            + copied = ask_rank0(shutil.copy, "train.py", "out")
            + answer = ask_rank0(input)
            + write_on_rank0(fig.savefig, "loss.png")
        """),
        flags("""
            # may write a file
            import somebody
            session = somebody.Session('runs')
            session.save()
        """),
        notes("""
            # a converted copy has a name of its own
            import sys
            print("usage:", sys.argv[0])
        """),
        Untouched("""
            import json
            import os
            files = os.listdir("data")
            json.dump(settings, file)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            yield from _look_at(module, call)
        for node in _names_of_script(module):
            yield Note(node, OTHER_NAME, of_other_name=True)
        for node, _ in handed_on(module, Does.FOLDER):
            yield rename(node, "TemporaryFolderOnRank0", BECAUSE)
        yield from handed_to(module, {Does.WRITE: "run_on_rank0", Does.ANSWER: "ask_rank0"}, BECAUSE)


def _names_of_script(module: Module) -> Iterator[ast.expr]:
    """`__file__` of what is started, and `sys.argv[0]`; not where a folder is asked for."""
    names = module.by_word.get("__file__", ()) if module is module.program.entry else ()
    firsts = (each for each in module.all(ast.Subscript) if constant(each.slice) == 0)
    nodes = (*names, *(each for each in firsts if module.name(each.value) == "sys.argv"))
    loads = (each for each in nodes if isinstance(each.ctx, ast.Load) and not isinstance(each, ast.Attribute))
    return (each for each in loads if not OF_FOLDER.search(module.text(module.statement(each))))


def _look_at(module: Module, call: Call) -> Iterator[Finding]:
    row = what_is(call.name)
    if row is None:
        yield from _by_looks(module, call)
    elif is_harmless(module, call, row):
        return
    elif row.does is Does.ANSWER or row.does is Does.WRITE and is_used(module, call):
        yield call_by(call.node, "ask_rank0", BECAUSE)
    elif row.does is Does.WRITE:
        yield call_by(call.node, "run_on_rank0", BECAUSE)
    elif row.does is Does.FOLDER:
        yield rename(call.node.func, "TemporaryFolderOnRank0", BECAUSE)


def _by_looks(module: Module, call: Call) -> Iterator[Finding]:
    """A function or a method that is in no table."""
    owner, name = _called(module, call)
    if call.name and (
        call.name.startswith(QUIET) or "." not in call.name or module.program.is_local(call.name)
    ):
        return
    if call.name is None and (owner is None or _is_own(module, owner, name)):
        return
    match method(name):
        case MethodDoes.WRITE if call.is_bare and name.startswith("save"):
            yield Hazard(call.node, UNKNOWN_FILE.of(code=module.text(call.node)))
        case MethodDoes.WRITE if not call.is_bare:
            yield call_by(call.node, "write_on_rank0", BECAUSE)
        case MethodDoes.MAY_WRITE if not call.is_bare and not is_used(module, call):
            yield call_by(call.node, "write_on_rank0", BECAUSE)
        case MethodDoes.WRITE_PATH if call.name is None:
            yield call_by(call.node, "write_on_rank0", BECAUSE)
        case MethodDoes.CHANGE_PATH if is_path(module, owner):
            yield call_by(call.node, "write_on_rank0", BECAUSE)


def _called(module: Module, call: Call) -> tuple[ast.expr | None, str]:
    """The object and the name of a method, also by a name for it: `save = image.save; save(path)`.

    Of a computed one, the name that its beginning stands for: `getattr(frame, "to_" + kind)(path)`.
    """
    if call.name:
        return None, call.name.rpartition(".")[2]
    for value in module.values(call.node.func):
        match value:
            case ast.Attribute(value=owner, attr=attr):
                return owner, attr
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, key, *_]):
                return owner, _word(key)
    return None, ""


def _word(key: ast.expr) -> str:
    """A method's name, or one that begins as it does."""
    first = next(pieces(key), "")
    return f"{first}{'' if isinstance(key, ast.Constant) else 'csv'}" if isinstance(first, str) else ""


def _is_own(module: Module, owner: ast.expr, name: str) -> bool:
    """A method of the program's classes; what a wrapper holds (`net.module.save()`) may be one of them, too."""
    is_wrapped = isinstance(owner, ast.Attribute) and owner.attr == "module"
    return name in module.program.methods and (is_wrapped or not is_foreign(module, owner))
