"""Whether a model's outputs may be large: then each rank keeps its rows of them (WholeBatchInParts).

This decides what a step costs, and nothing of what it computes: a look at the text is enough.
"""

import ast

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import functions_of
from dp2ddp.codemod.model.program import Program

# What makes images: layers, and functions in a layer's methods.
LAYERS = words(
    "torch.nn.ConvTranspose2d torch.nn.ConvTranspose3d torch.nn.Upsample torch.nn.UpsamplingBilinear2d",
    "torch.nn.UpsamplingNearest2d torch.nn.PixelShuffle",
)
FUNCTIONS = words(
    "torch.nn.functional.interpolate torch.nn.functional.upsample torch.nn.functional.pixel_shuffle",
    "torch.nn.functional.conv_transpose2d",
)
FLATTENS = {"view", "reshape"}


def may_give_large_outputs(program: Program) -> bool:
    """Whether the text makes images, or compares rows of tokens: `criterion(output.view(-1, words), targets)`."""
    return any(
        _makes_images(module) or any(_compares_tokens(module, call) for call in module.calls)
        for module in program.modules
    )


def _makes_images(module: Module) -> bool:
    if not LAYERS.isdisjoint(module.mentions):
        return True
    named = (node for name in FUNCTIONS for node in module.mentions.get(name, ()))
    return any(is_in_layer(module, node) for node in named)


def is_in_layer(module: Module, node: ast.AST) -> bool:
    """Whether a class around has a forward."""
    classes = (each for each in module.around(node) if isinstance(each, ast.ClassDef))
    return any(function.name == "forward" for each in classes for function in functions_of(each))


def _compares_tokens(module: Module, call: Call) -> bool:
    around = module.parents[call.node]
    first = call.node.args[0] if call.node.args else None
    return (
        call.method in FLATTENS
        and isinstance(around, ast.Call)
        and len(around.args) > 1
        and len(call.node.args) == 2
        and isinstance(first, ast.UnaryOp)
    )
