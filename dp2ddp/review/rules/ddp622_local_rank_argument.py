"""`--local_rank` is an argument, which torchrun does not pass.

Finds `add_argument("--local_rank")` in a file that uses it and never reads LOCAL_RANK from the environment.

torchrun says the local rank by LOCAL_RANK only, so the argument keeps its default, on every rank.
`torch.distributed.launch` passes it as `--local-rank` since torch 2.0, which `--local_rank` does not accept.

`--fix` takes the default from LOCAL_RANK where there is one, and the old default elsewhere: what is passed still
counts. Silent where something else sets the value, a function of another file sets ranks up, or the argument is spelled
both ways, for both versions of `torch.distributed.launch`.

https://github.com/XPixelGroup/BasicSR/issues/626, https://github.com/skycrapers/TecoGAN-PyTorch/issues/31.
"""

import ast
import re

from dp2ddp.codemod.edits import Replace
from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, literal, mended

LOCAL_RANK = re.compile("LOCAL_RANK")


class LocalRankArgument(CheckRule):
    fixes = True
    message = "torchrun passes no --local_rank: the value stays at its default on every rank"
    advice = 'take it from the environment: int(os.environ["LOCAL_RANK"])'
    examples = (
        mended("""
              import argparse
              import os
              parser = argparse.ArgumentParser()
            - parser.add_argument("--local_rank", type=int, default=-1)
            + parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
              args = parser.parse_args()
              torch.cuda.set_device(args.local_rank)
        """),
        *corrected("""
            # LOCAL_RANK
              import argparse
              import os
              parser = argparse.ArgumentParser()
              parser.add_argument("--local_rank", type=int)
              args = parser.parse_args()
            + args.local_rank = int(os.environ["LOCAL_RANK"])
              torch.cuda.set_device(args.local_rank)
        """),
    )

    def find(self, script: DDPScript) -> Found:
        if script.has_framework or script.file.says(LOCAL_RANK) or not (script.groups or script.wraps):
            return
        uses = script.module.by_word.get("local_rank", ())
        is_set = any(isinstance(use.ctx, ast.Store) for use in uses)
        # a way of its own to start ranks is to stay out of a converted script
        for call in script.module.calls if uses and not is_set and not script.is_converted else ():
            names = list(map(literal, call.node.args)) if call.method == "add_argument" else []
            if "--local_rank" in names and "--local-rank" not in names:
                yield self.problem(call.node, _fix(script, call))


def _fix(script: DDPScript, call: Call) -> tuple[Replace, ...]:
    default, kind = call.argument(None, "default"), call.argument(None, "type")
    has_os = {each.dotted for each in script.module.top.bindings.get("os", ())} == {"os"}
    is_int = script.module.name(kind) == "builtins.int" and type(literal(default)) is int
    if default is None or not is_int or not has_os:
        return ()
    code = f'int(os.environ.get("LOCAL_RANK", {script.module.text(default)}))'
    return (Replace(default, code, "torchrun says the local rank by the environment"),)
