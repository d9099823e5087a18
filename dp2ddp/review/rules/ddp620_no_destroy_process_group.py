"""The process group is made, and never destroyed.

Finds a script (with `if __name__ == "__main__":`, or a spawned function) that makes a process group, and never calls
`destroy_process_group`.

torch warns of it at the end of every run since 2.4. A rank that ends first takes its connections away while others may
still use them, which shows as an error or a hang at the end of a training that went well.

`--fix` puts the call behind `main()`, or at the end of the spawned function, where the process group is made in any
case: nothing of the training comes after it. Silent where anything may take it down by its name (`cleanup`,
`shutdown`), and with gloo, which needs no taking down.

https://github.com/pytorch/pytorch/issues/126275, https://github.com/pytorch/pytorch/pull/122358.
"""

import ast
import re

from dp2ddp.codemod.edits import InsertAfter
from dp2ddp.codemod.model.nodes import is_main_guard
from dp2ddp.review.check_rule import Call, CheckWarning, DDPScript, Found, literal, mended, right

TAKES_DOWN = re.compile(r"clean_?up|destroy_(dist|process_group)|shutdown|tear_?down", re.IGNORECASE)


class NoDestroyProcessGroup(CheckWarning):
    fixes = True
    shown_once = True
    start = "import torch.distributed as dist\nimport torch.multiprocessing as mp\n"
    message = (
        "nothing takes this process group down: torch warns at the end of a run, and ranks may hang there"
    )
    advice = "call destroy_process_group() when all is done"
    examples = (
        mended("""
              def main():
                  dist.init_process_group("nccl")
                  train()

              if __name__ == "__main__":
                  main()
            +     dist.destroy_process_group()
        """),
        mended("""
              def worker(rank, world):
                  dist.init_process_group("nccl", rank=rank, world_size=world)
                  train()
            +     dist.destroy_process_group()

              if __name__ == "__main__":
                  mp.spawn(worker, args=(2,), nprocs=2)
        """),
        right('def init_distributed():\n    dist.init_process_group("nccl")'),
    )

    def find(self, script: DDPScript) -> Found:
        is_started = _guard(script) is not None or bool(script.file.spawns)
        is_taken_down = script.has_framework or script.is_converted or script.file.says(TAKES_DOWN)
        if is_taken_down or not is_started:
            return
        group = next((each for each in script.groups if literal(each.argument(0, "backend")) != "gloo"), None)
        if group is not None:
            yield self.problem(group.node, _fix(script, group))


def _guard(script: DDPScript) -> ast.If | None:
    """`if __name__ == "__main__":`."""
    return next(
        (node for node in script.module.tree.body if isinstance(node, ast.If) and is_main_guard(node)), None
    )


def _fix(script: DDPScript, group: Call) -> tuple[InsertAfter, ...]:
    """The call behind the last statement that a rank runs, where it has made the group for certain."""
    name = script.file.text_of(group.node.func).rpartition(".")[0]
    function = script.file.function_of(group.node)
    if not name or not isinstance(function, ast.FunctionDef):
        return ()
    last = _last_statement(script, function)
    leaves = any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(function))
    is_certain = script.module.statement(group.node) in function.body
    if last is None or leaves or not is_certain or isinstance(last, (ast.Raise, ast.FunctionDef)):
        return ()
    code, because = f"{name}.destroy_process_group()", "the process group is taken down at the end"
    return (InsertAfter(last, code, because),)


def _last_statement(script: DDPScript, function: ast.FunctionDef) -> ast.stmt | None:
    """The end of a function that is spawned; else `main()`, if that is what the script ends with."""
    if script.file.is_started(function):
        return function.body[-1]
    guard = _guard(script)
    match guard.body[-1] if guard and not script.file.spawns else None:
        case ast.Expr(value=ast.Call(func=name)) as last if script.file.definition(name) is function:
            return last
    return None
