"""The script says which GPUs there are, to every rank alike.

Finds `os.environ["CUDA_VISIBLE_DEVICES"] = "..."`, a text, in a file that wraps a model or makes a process group.

With one GPU in it all ranks share that one (NCCL refuses: "Duplicate GPU detected"). With several, a launch with
another number of ranks, or on another machine, ends in "invalid device ordinal"; and what the scheduler chose is
overwritten.

Values that are computed (from an argument, a rank) are left alone.

https://github.com/pytorch/examples/issues/885, https://github.com/Peterande/D-FINE/issues/289.
"""

import ast

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, literal, wrong


class VisibleDevicesInScript(CheckWarning):
    message = "{what}"
    advice = "leave it out, and say it where the script is started: CUDA_VISIBLE_DEVICES=0,1 torchrun ..."
    examples = (
        *corrected("""
            # all ranks share
              import os
            - os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            + os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
        """),
        wrong('# 2 GPUs\nimport os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'),
    )

    def find(self, script: DDPScript) -> Found:
        for node in script.module.nodes(ast.Assign, ast.Call) if script.wraps or script.groups else ():
            owner, value = _chosen(node)
            text = literal(value)
            if not isinstance(text, str) or not text or script.module.name(owner) != "os.environ":
                continue
            count = len(text.split(","))
            what = f"any launch of this script sees these {count} GPUs, whatever it was given"
            yield self.problem(node, what=what if count > 1 else "all ranks share this one GPU")


def _chosen(node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """Whose CUDA_VISIBLE_DEVICES is set, and to what; `setdefault` of several leaves the choice to the launch."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=owner, slice=key)], value=value):
            return (owner, value) if literal(key) == "CUDA_VISIBLE_DEVICES" else (None, None)
        case ast.Call(func=ast.Attribute(value=owner, attr="update"), keywords=keywords):
            return owner, next((each.value for each in keywords if each.arg == "CUDA_VISIBLE_DEVICES"), None)
        case ast.Call(func=ast.Attribute(value=owner, attr="setdefault"), args=[key, value]):
            is_one = literal(key) == "CUDA_VISIBLE_DEVICES" and "," not in str(literal(value))
            return (owner, value) if is_one else (None, None)
    return None, None
