"""Whether a model's outputs may be large: then each rank keeps its rows of them (WholeBatchInParts).

This decides what a step costs, and nothing of what it computes: a look at the text is enough.
"""

from __future__ import annotations

import ast

from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

# What layers of images make images with.
MAKES_IMAGES = {
    *(f"torch.nn.ConvTranspose{dims}d" for dims in (2, 3)),
    *(
        f"torch.nn.{name}"
        for name in ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "PixelShuffle")
    ),
    *(
        f"torch.nn.functional.{name}"
        for name in ("interpolate", "upsample", "pixel_shuffle", "conv_transpose2d")
    ),
}
FLATTENS = {"view", "reshape"}


def may_give_large_outputs(program: Program) -> bool:
    """Whether the text makes images, or compares rows of tokens: `criterion(output.view(-1, words), targets)`."""
    return any(
        not MAKES_IMAGES.isdisjoint(module.mentions)
        or any(_compares_tokens(module, call) for call in module.calls)
        for module in program.modules
    )


def _compares_tokens(module: Module, call: Call) -> bool:
    around = module.parents[call.node]
    first = call.node.args[0] if call.node.args else None
    return (
        call.method in FLATTENS
        and isinstance(around, ast.Call)
        and len(around.args) > 1
        and len(call.node.args) > 1
        and isinstance(first, ast.UnaryOp)
    )
