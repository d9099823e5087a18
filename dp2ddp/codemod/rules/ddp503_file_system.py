"""DDP503: folders, files and programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Import, Lift, PassTo, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.effects import Effect
from dp2ddp.codemod.facts.handed_on import FunctionMention
from dp2ddp.codemod.facts.handles import is_only_closed
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.sinks import TEMPORARY
from dp2ddp.codemod.meeting_places import only_in_main_flow
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

HELPERS = {
    **dict.fromkeys(("file", "process", "saver", "temporary name"), "on_rank_zero"),
    "saver or open file": "write_on_rank_zero",
}


class FileSystem(Rule):
    """Make folders, move files and start programs once.

    ## What it does
    `os.makedirs(path)` becomes `on_rank_zero(os.makedirs, path)`; the same for mkdir, remove, rename, shutil,
    subprocess, os.system, logging.config.dictConfig (it opens the log files), and for functions of libraries that
    write a file (np.save, plt.savefig, to_csv, cv2.imwrite, save_image), of any library: what is called like a sink
    (`anything.save(path)`, `lib.write_image(image, path)`) is one, unless it is given an open file. Temporary
    folders and files are made once, for all ranks. A function of the script that does nothing but write is called
    once as a whole: `save_checkpoint(state, is_best)` becomes `on_rank_zero(save_checkpoint, state, is_best)`, where
    that is one line instead of several.

    ## Why
    Of four ranks that call os.makedirs, one succeeds and three raise FileExistsError.

    ## Safety
    Ranks meet before and after; all get rank 0's result, or its exception. So `if not os.path.exists(p):
    os.makedirs(p)` takes the same branch everywhere.

    ## References
    docs/semantics.md#folders, docs/semantics.md#clocks.
    """

    code = "DDP503"
    name = "file-system"
    nodes = ("Attribute", "Call", "Name")
    examples = (
        Rewrites(
            before="""
                import logging.config
                import os
                import torch
                net = torch.nn.DataParallel(net)
                if not os.path.isdir("out"):
                    os.makedirs("out", exist_ok=True)
                plt.figure()
                fig.savefig("loss.png")
                logging.config.dictConfig(settings)
            """,
            after="""
                import logging.config
                import os
                import torch
                net = torch.nn.DataParallel(net)
                if not os.path.isdir("out"):
                    on_rank_zero(os.makedirs, "out", exist_ok=True)
                plt.figure()
                on_rank_zero(fig.savefig, "loss.png")
                on_rank_zero(logging.config.dictConfig, settings)
            """,
        ),
        Rewrites(
            before="""
                import io
                import torch
                net = torch.nn.DataParallel(net)
                image = Image.open("a.png")
                image.save(path)
                buffer = io.BytesIO()
                image.save(buffer, format="png")
            """,
            after="""
                import io
                import torch
                net = torch.nn.DataParallel(net)
                image = Image.open("a.png")
                on_rank_zero(image.save, path)
                buffer = io.BytesIO()
                image.save(buffer, format="png")
            """,
        ),
        Rewrites(
            before="""
                import io
                import torch
                net = torch.nn.DataParallel(net)
                def show(figure, out):
                    figure.savefig(out)
                show(figure, io.BytesIO())
            """,
            after="""
                import io
                import torch
                net = torch.nn.DataParallel(net)
                def show(figure, out):
                    write_on_rank_zero(figure.savefig, out)
                show(figure, io.BytesIO())
            """,
        ),
        Rewrites(
            before="""
                import functools
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                save = functools.partial(np.save, "a.npy")
                writers = {"npy": np.save}
            """,
            after="""
                import functools
                import numpy as np
                import torch
                net = torch.nn.DataParallel(net)
                save = functools.partial(on_rank_zero, np.save, "a.npy")
                writers = {"npy": functools.partial(on_rank_zero, np.save)}
            """,
        ),
        Rewrites(
            before="""
                import os
                import shutil
                import torch
                net = torch.nn.DataParallel(net)
                def keep_settings(folder):
                    os.makedirs(folder)
                    shutil.copy("settings.yaml", folder)
                keep_settings("out")
            """,
            after="""
                import os
                import shutil
                import torch
                net = torch.nn.DataParallel(net)
                def keep_settings(folder):
                    os.makedirs(folder)
                    shutil.copy("settings.yaml", folder)
                on_rank_zero(keep_settings, "out")
            """,
        ),
        Rewrites(
            before="""
                from tempfile import TemporaryDirectory
                import torch
                net = torch.nn.DataParallel(net)
                with TemporaryDirectory() as folder:
                    pass
            """,
            after="""
                from tempfile import TemporaryDirectory
                import torch
                net = torch.nn.DataParallel(net)
                with TemporaryDirectoryOnRankZero() as folder:
                    pass
            """,
        ),
        Flags(
            before="""
                import somebody
                import torch
                net = torch.nn.DataParallel(net)
                session = somebody.Session("runs")
                session.save()
            """,
            message="may write a file",
        ),
        Flags(
            before="""
                import os, tempfile
                import torch
                net = torch.nn.DataParallel(net)
                handle, path = tempfile.mkstemp()
                with os.fdopen(handle, "w") as file:
                    file.write("log")
            """,
            message="gives a descriptor",
        ),
        Flags(
            before="""
                import subprocess
                import torch
                net = torch.nn.DataParallel(net)
                watcher = subprocess.Popen(["nvidia-smi"])
            """,
            message="subprocess.Popen",
        ),
        Untouched(
            """
            import os
            import torch
            net = torch.nn.DataParallel(net)
            files = os.listdir("data")
            name = name.replace("a", "b")
            """
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for effect in facts.effects:
            if effect.kind == "background process":
                yield Hazard(
                    effect.call.node, "subprocess.Popen() would start a program on every rank", _POPEN
                )
            elif effect.kind == "saver of who knows what":
                call = ast.unparse(effect.call.node)
                yield Hazard(effect.call.node, f"{call} may write a file: nothing here says which", _NO_PATH)
            elif effect.kind == "temporary":
                yield from _temporary(facts, effect)
            elif effect.kind in HELPERS:
                call = f"{ast.unparse(effect.call.node.func)}()"
                if hazard := only_in_main_flow(facts, effect.call.node, call):
                    yield hazard
                else:
                    helper = strategy.helper(_role(facts, effect))
                    yield PassTo(effect.call.node, facts.names.helper(helper), BECAUSE)
                    yield Lift(helper, BECAUSE)
        for mention in facts.mentions:
            if mention.kind == "saver":
                yield from _handed_on(facts, strategy, mention)


def _role(facts: Facts, effect: Effect) -> str:
    """A smaller tier hands nothing back where nobody asks (codemod/strategy.py)."""
    role = HELPERS[effect.kind]
    is_used = not isinstance(facts.script.scopes.parents[effect.call.node], ast.Expr)
    return "answer_of_rank_zero" if role == "on_rank_zero" and is_used else role


def _temporary(facts: Facts, effect: Effect) -> Iterator[Finding]:
    """One for all ranks; in a data set or a forward it is each rank's own, and nobody else's."""
    if effect.call.name == "tempfile.mkstemp" and not is_only_closed(facts.script, effect.call.node):
        yield Hazard(
            effect.call.node, "tempfile.mkstemp() gives a descriptor that every rank would write to", _MKSTEMP
        )
    elif facts.places.of(effect.call.node) is ExecutionPlace.MAIN:
        helper = TEMPORARY[effect.call.name or ""]
        yield Replace(effect.call.node.func, facts.names.helper(helper), _TEMPORARY)
        yield Lift(helper, _TEMPORARY)


def _handed_on(facts: Facts, strategy: Strategy, mention: FunctionMention) -> Iterator[Finding]:
    """`partial(np.save, p)` to `partial(on_rank_zero, np.save, p)`; elsewhere `partial(on_rank_zero, np.save)`."""
    definition = strategy.helper("on_rank_zero")
    helper = facts.names.helper(definition)
    code = f"{helper}, {{function}}" if mention.completed_by else f"functools.partial({helper}, {{function}})"
    if not mention.completed_by:
        yield Import("functools", None, BECAUSE)
    yield Replace(mention.node, code, BECAUSE, {"function": mention.node})
    yield Lift(definition, BECAUSE)


BECAUSE = "done once, by rank 0, for all"
_TEMPORARY = "one for all ranks: rank 0 makes it, and removes it when all are done"
_NO_PATH = "give it the path; or answer that it writes none"
_MKSTEMP = "close it at once, os.close(handle), and write with open(path, 'w')"
_POPEN = "start it on rank 0 alone, in a script of its own, or before torchrun"
