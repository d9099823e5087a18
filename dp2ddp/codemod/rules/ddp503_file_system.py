"""DDP503: folders, files and programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, Lift, PassTo
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.rule import Flags, Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy
from dp2ddp.codemod.whereabouts import only_in_main_flow

KINDS = ("file", "process", "saver", "temporary")


class FileSystem(Rule):
    """Make folders, move files and start programs once.

    ## What it does
    `os.makedirs(path)` becomes `on_rank_zero(os.makedirs, path)`; the same for mkdir, remove, rename, shutil,
    subprocess, os.system, logging.config.dictConfig (it opens the log files), and for functions of libraries that
    write a file (np.save, plt.savefig, to_csv, cv2.imwrite, save_image).

    ## Why
    Of four ranks that call os.makedirs, one succeeds and three raise FileExistsError.

    ## Safety
    Ranks meet before and after; all get rank 0's result, or its exception. So `if not os.path.exists(p):
    os.makedirs(p)` takes the same branch everywhere.

    ## References
    SEMANTICS 78, 79.
    """

    code = "DDP503"
    name = "file-system"
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
        because = "done once, by rank 0; every rank gets its result"
        for effect in facts.effects:
            told = f"{ast.unparse(effect.call.node.func)}()"
            if effect.kind == "background process":
                yield Hazard(
                    effect.call.node, "subprocess.Popen() would start a program on every rank", _POPEN
                )
            if effect.kind not in KINDS:
                continue
            hazard = only_in_main_flow(facts, effect.call.node, told)
            if hazard:
                yield hazard
            else:
                yield PassTo(effect.call.node, facts.names.helper("on_rank_zero"), because)
                yield Lift("on_rank_zero", because)


_POPEN = "start it on rank 0 alone (dist.get_rank() == 0), or before torchrun"
