"""The argument promises a total batch size, and each rank takes all of it.

Finds a command line argument whose help speaks of the total or global batch, or that of all GPUs, and a loader with a
`DistributedSampler` that gets it undivided.

With W ranks the batch is W times what was asked for, and the learning rate no longer fits it.

Silent where the argument is assigned to or divided anywhere in the file, and where a function of another file may do
that.

https://github.com/pytorch/examples/issues/640, https://github.com/pytorch/examples/issues/771.
"""

import ast
import re

from dp2ddp.review.check_rule import Call, CheckWarning, DDPScript, Found, corrected, literal

TOTAL = re.compile(
    r"\b(total|global|overall|effective)\b|\b(all|across)\b.{0,12}\b(gpu|device|rank)", re.IGNORECASE
)


class TotalBatchOnEachRank(CheckWarning):
    message = "`{name}` is the total batch by its help, but each of W ranks takes all of it: W times it"
    advice = "divide it by the number of ranks"
    examples = corrected("""
        # W times
          import argparse
          from torch.utils.data import DistributedSampler
          parser = argparse.ArgumentParser()
          parser.add_argument("--batch-size", type=int, help="total batch size of all GPUs")
          args = parser.parse_args()
          sampler = DistributedSampler(data)
        - loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
        + loader = DataLoader(data, batch_size=args.batch_size // world_size, sampler=sampler)
    """)

    def find(self, script: DDPScript) -> Found:
        arguments = (call for call in script.module.calls if call.method == "add_argument")
        total = {_name_of(call) for call in arguments if _is_total(call)}
        for loader in script.loaders if total and not script.sets_up_elsewhere else ():
            match loader.size:
                case ast.Attribute(attr=name) as size if name in total and loader.sampler:
                    if not any(_is_changed(script, use) for use in script.module.by_word[name]):
                        yield self.problem(size, name=name)


def _is_total(call: Call) -> bool:
    text = literal(call.argument(None, "help"))
    return isinstance(text, str) and "batch" in text and TOTAL.search(text) is not None


def _name_of(call: Call) -> str:
    """What argparse calls the value."""
    given = literal(call.argument(None, "dest"))
    options = [value for value in map(literal, call.node.args) if isinstance(value, str)]
    long = next((option for option in options if option.startswith("--")), options[0] if options else "")
    return given if isinstance(given, str) else long.lstrip("-").replace("-", "_")


def _is_changed(script: DDPScript, use: ast.Name | ast.Attribute) -> bool:
    parents = list(script.module.around(use))[:3]  # also `int(args.batch_size / n)`, `args.batch_size /= n`
    is_divided = any(isinstance(parent, (ast.BinOp, ast.AugAssign)) for parent in parents)
    return is_divided or isinstance(use.ctx, ast.Store)
