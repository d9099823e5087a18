"""`no_sync` stands around the backward pass only, and does nothing there.

Finds `with model.no_sync():`, and the same in `... if ... else ...`, whose block differentiates and calls no model,
where the forward came before it.

The wrapper decides in its forward whether the next backward sums (measured: the gradients of two ranks are the same
afterwards). So gradients travel in every step of an accumulation, which is what no_sync was to save.

Found where the block holds nothing but the backward pass.

https://github.com/pytorch/PiPPy/issues/1133, https://github.com/KellerJordan/modded-nanogpt/pull/31.
"""

import ast

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, inside


class ForwardOutsideNoSync(CheckWarning):
    message = "does nothing: the forward, which came before, has decided to sum the gradients"
    advice = "put the forward pass into the block as well"
    examples = corrected("""
        # forward
          model = DistributedDataParallel(net)
          for x, y in loader:
        -     loss = criterion(model(x), y)
              with model.no_sync():
        +         loss = criterion(model(x), y)
                  loss.backward()
    """)

    def find(self, script: DDPScript) -> Found:
        for block in filter(_only_differentiates, script.module.all(ast.With)):
            for item in block.items:
                wrapper = _unsynced(item)
                if wrapper is not None and _ran_before(script, block, wrapper):
                    yield self.problem(item.context_expr)


def _unsynced(item: ast.withitem) -> ast.expr | None:
    """`model` of `with model.no_sync():`, and of `with model.no_sync() if accumulates else nullcontext():`."""
    match item.context_expr:
        case (
            ast.Call(func=ast.Attribute(value=wrapper, attr="no_sync"))
            | ast.IfExp(body=ast.Call(func=ast.Attribute(value=wrapper, attr="no_sync")))
            | ast.IfExp(orelse=ast.Call(func=ast.Attribute(value=wrapper, attr="no_sync")))
        ):
            return wrapper
    return None


def _only_differentiates(block: ast.With) -> bool:
    calls = (call for statement in block.body for call in inside(statement, ast.Call))
    words = {getattr(call.func, "attr", "") for call in calls}
    return "backward" in words and words <= {"backward", "scale"}


def _ran_before(script: DDPScript, block: ast.With, wrapper: ast.expr) -> bool:
    """Whether the wrapper is called further up, in the same turn of a loop, and not under no_sync itself."""
    text, calls = script.file.text_of(wrapper), inside(script.file.turn_of(block), ast.Call)
    before = (each for each in calls if each.lineno < block.lineno and script.file.text_of(each.func) == text)
    around = ([item for each in script.file.around(call, ast.With) for item in each.items] for call in before)
    return not all(any(map(_unsynced, items)) for items in around)
