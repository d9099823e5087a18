"""DDP620: a process group that nobody takes down."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from dp2ddp.codemod.edits import InsertAfter
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS
from dp2ddp.codemod.rule import Flags, Rewrites, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

TAKES_DOWN = re.compile(r"cleanup|clean_up|destroy_dist|shutdown|tear_?down", re.IGNORECASE)


class NoDestroyProcessGroup(CheckRule):
    """The process group is made, and never destroyed.

    ## What it does
    Finds a script (with `if __name__ == "__main__":`, or a spawned function) that makes a process group, and
    never calls `destroy_process_group`.

    ## Why
    torch warns of it at the end of every run since 2.4. A rank that ends first takes its connections away while
    others may still use them, which shows as an error or a hang at the end of a training that went well.

    ## Safety
    `--fix` puts the call behind `main()`, or at the end of the spawned function, where the process group is
    made in any case: nothing of the training comes after it. Silent where a function of another file may take
    it down, and with gloo, which needs no taking down.

    ## References
    https://github.com/pytorch/pytorch/issues/126275, https://github.com/pytorch/pytorch/pull/122358.
    """

    code = "DDP620"
    name = "no-destroy-process-group"
    level = Level.WARNING
    fixes = True
    shown_once = True
    examples = (
        Rewrites(
            before="""
                import torch.distributed as dist

                def main():
                    dist.init_process_group("nccl")
                    train()

                if __name__ == "__main__":
                    main()
            """,
            after="""
                import torch.distributed as dist

                def main():
                    dist.init_process_group("nccl")
                    train()

                if __name__ == "__main__":
                    main()
                    dist.destroy_process_group()
            """,
        ),
        Rewrites(
            before="""
                import torch.distributed as dist
                import torch.multiprocessing as mp

                def worker(rank, world):
                    dist.init_process_group("nccl", rank=rank, world_size=world)
                    train()

                if __name__ == "__main__":
                    mp.spawn(worker, args=(2,), nprocs=2)
            """,
            after="""
                import torch.distributed as dist
                import torch.multiprocessing as mp

                def worker(rank, world):
                    dist.init_process_group("nccl", rank=rank, world_size=world)
                    train()
                    dist.destroy_process_group()

                if __name__ == "__main__":
                    mp.spawn(worker, args=(2,), nprocs=2)
            """,
        ),
        Flags(
            before="""
                import torch.distributed as dist
                def main():
                    if args.distributed:
                        dist.init_process_group("nccl")
                    train()
                if __name__ == "__main__":
                    main()
            """,
            message="destroy_process_group",
        ),
        Untouched("""
                import torch.distributed as dist
                def main():
                    dist.init_process_group("nccl")
                    train()
                    dist.destroy_process_group()
                if __name__ == "__main__":
                    main()
        """),
        Untouched("""
                import torch.distributed as dist
                def init_distributed():
                    dist.init_process_group("nccl")
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_framework or script.is_converted or _may_take_down(script) or not _is_started(script):
            return
        for group in [group for group in script.groups if literal(group.argument(0, "backend")) != "gloo"][
            :1
        ]:
            yield Problem(
                group.node,
                "nothing takes this process group down: torch warns at the end of a run, and ranks may hang there",
                "call destroy_process_group() when all is done",
                _fix(script, group),
            )


def _may_take_down(script: DDPScript) -> bool:
    """Whether the file destroys a group, or calls a function out of sight that may, or hands one on to be called."""
    if script.mentions("destroy_process_group"):
        return True
    matching = (
        mention
        for word, mentions in script.module.by_word.items()
        if TAKES_DOWN.search(word)
        for mention in mentions
    )
    return any(_is_called(script, mention) and _is_out_of_sight(script, mention) for mention in matching)


def _is_called(script: DDPScript, mention: ast.AST) -> bool:
    """`cleanup()`, `atexit.register(cleanup)`, `@cleanup`; no option, `args.shutdown_hook`."""
    parent = script.module.parents[mention]
    if isinstance(parent, ast.Call):
        return True
    return isinstance(parent, (*NAMED_FUNCTIONS, ast.ClassDef)) and mention in parent.decorator_list


def _is_out_of_sight(script: DDPScript, function: ast.AST) -> bool:
    """Of a function of this file it is seen that it takes nothing down, and of Python's own it is known."""
    name = script.module.name(function) or ""
    in_file = script.file.definition(function) is not None
    return not in_file and name.split(".")[0] not in sys.stdlib_module_names


def _is_started(script: DDPScript) -> bool:
    return _guard(script) is not None or bool(script.sites.spawns)


def _guard(script: DDPScript) -> ast.If | None:
    """`if __name__ == "__main__":`."""
    return next(
        (
            node
            for node in script.module.tree.body
            if isinstance(node, ast.If) and "__name__" in script.file.text_of(node.test)
        ),
        None,
    )


def _fix(script: DDPScript, group: Call) -> tuple[InsertAfter, ...]:
    """The call behind the last statement that a rank runs, where it has made the group for certain."""
    name = script.file.text_of(group.node.func).rpartition(".")[0]
    function, guard = script.sites.function_of(group.node), _guard(script)
    statement = script.module.statement(group.node)
    if not name or not isinstance(function, ast.FunctionDef) or statement not in function.body:
        return ()
    if any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(function)):
        return ()
    is_spawned = any(
        site in set(ast.walk(spawn.node))
        for spawn in script.sites.spawns
        for site in script.sites.sites_of(function)
    )
    last = function.body[-1] if is_spawned else guard.body[-1] if guard and not script.sites.spawns else None
    is_last_call = last is not None and (is_spawned or _calls(script, last, function))
    if last is None or not is_last_call or isinstance(last, (ast.Raise, ast.FunctionDef)):
        return ()
    return (
        InsertAfter(last, f"{name}.destroy_process_group()", "the process group is taken down at the end"),
    )


def _calls(script: DDPScript, statement: ast.stmt, function: ast.FunctionDef) -> bool:
    """`main()`, by itself."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name() as name)):
            return script.file.definition(name) is function
    return False
