"""How large batches and outputs may be, and which data lie in memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.samples import AROUND_DATA_SETS
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.training_script import TrainingScript
from dp2ddp.codemod.facts.uses import Stopper
from dp2ddp.codemod.facts.whole_numbers import WholeNumbers

# Outputs as large as their inputs: of these each rank keeps its own rows (RowsOnRanks), and nothing is gathered.
DENSE_LAYERS = of(
    "torch.nn",
    "ConvTranspose1d ConvTranspose2d ConvTranspose3d Upsample UpsamplingBilinear2d UpsamplingNearest2d PixelShuffle "
    "MaxUnpool2d MaxUnpool3d",
)
DENSE_FUNCTIONS = {"interpolate", "upsample", "pixel_shuffle", "conv_transpose2d", "max_unpool2d"}
DENSE_LIBRARIES = (
    "torchvision.models.segmentation",
    "torchvision.models.detection",
    "transformers.",
    "segmentation_",
)
# Samples that are read from files are large: rank 0 hands them to the others by memory (share), and not by messages.
READERS: tuple[str, ...] = (
    "PIL.Image.open",
    "cv2.imread",
    "imageio.",
    "skimage.io.",
    "h5py.",
    "lmdb.",
    "librosa.",
    "soundfile.",
)
READERS += ("torchaudio.", "nibabel.", "pydicom.", "decord.", "av.", "rasterio.", "numpy.load", "torch.load")
LARGE_DATA_SETS = of(
    "torchvision.datasets", "ImageFolder DatasetFolder ImageNet CocoDetection CocoCaptions Places365"
)
LARGE_DATA_SETS |= of(
    "torchvision.datasets", "VOCDetection VOCSegmentation Cityscapes CelebA LSUN Kinetics UCF101 HMDB51"
)


LARGE_OUTPUTS = "outputs may be large, and each rank keeps its own rows of them"
# Scores of so many bytes go whole to every rank in the time that full helpers take for their rows (docs/log.md).
SMALL_SCORES = 2**22
# What the text does not tell. Nothing depends on it but speed.
USUAL_BATCH, USUAL_LENGTH = 64, 512


def unlike_ordinary_outputs(call: CallSite) -> Iterator[Stopper]:
    """Outputs of libraries, large and in classes of their own."""
    if (call.name or "").startswith(DENSE_LIBRARIES):
        yield Stopper(LARGE_OUTPUTS, call.node)


def costly(subject: TrainingScript) -> Iterator[Stopper]:
    """Large batches and outputs: the smaller tiers are right about them, and slower, as they go whole to every rank."""
    for call in subject.calls:
        name, place = call.name or "", subject.places.of(call.node)
        enlarges = (
            place is ExecutionPlace.FORWARD and (name.rpartition(".")[2] or call.method) in DENSE_FUNCTIONS
        )
        if name in DENSE_LAYERS or enlarges or _is_of_tokens(subject, call) and _are_many(subject, call):
            yield Stopper(LARGE_OUTPUTS, call.node)
        if name.startswith(READERS) and place is ExecutionPlace.WORKER or name in LARGE_DATA_SETS:
            yield Stopper(
                "samples are read from files, and batches go from rank to rank by memory", call.node
            )


def _are_many(subject: TrainingScript, of_tokens: CallSite) -> bool:
    """Whether the scores of a batch may be more than a few megabytes."""
    numbers = WholeNumbers(subject.program)
    scores = numbers.largest(of_tokens.node.args[1])
    sizes = (call.argument(1, "batch_size") for call in subject.calls if call.name == LOADER)
    batch = max((numbers.largest(size) or USUAL_BATCH for size in sizes if size), default=USUAL_BATCH)
    return scores is None or 4 * scores * batch * USUAL_LENGTH > SMALL_SCORES


def _is_of_tokens(subject: TrainingScript, call: CallSite) -> bool:
    """`scores.view(-1, words)`, of what a wrapped model gives: one row for each token, or pixel, of a batch."""
    if call.method not in ("view", "reshape") or len(call.node.args) != 2 or literal(call.node.args[0]) != -1:
        return False
    program, receiver = subject.program, getattr(call.node.func, "value", None)
    if subject.places.of(call.node) is ExecutionPlace.FORWARD:
        return isinstance(program.scopes.parents[call.node], ast.Return)
    made = {target for forward in subject.training.forwards for target in _targets(program, forward)}
    return receiver in subject.training.forwards or (
        isinstance(receiver, (ast.Name, ast.Attribute)) and program.variable(receiver) in made
    )


def _targets(program: Script, forward: ast.Call) -> Iterator[Variable]:
    """The variables that an output is given to."""
    statement = program.scopes.statement(forward)
    for target in statement.targets if isinstance(statement, ast.Assign) else ():
        for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,):
            if isinstance(part, (ast.Name, ast.Attribute)):
                yield program.variable(part)


def lies_in_memory(modules: Modules, script: Script, data_set: ast.expr | None) -> bool:
    """Whether a loader's samples are parts of tensors: making a batch again is cheaper than sending it."""
    made = script.scopes.value(data_set)
    if not isinstance(made, ast.Call):
        return False
    name = script.scopes.name(made.func) or ""
    if name in AROUND_DATA_SETS and made.args:
        return lies_in_memory(modules, script, made.args[0])
    home, definition = modules.definition(script, made.func) or (script, None)
    if isinstance(definition, ast.FunctionDef):
        results = [node.value for node in ast.walk(definition) if isinstance(node, ast.Return)]
        return bool(results) and all(_is_tensor_data_set(home, result) for result in results)
    return _is_tensor_data_set(script, made) or (
        isinstance(definition, ast.ClassDef) and _picks(home, definition)
    )


def _is_tensor_data_set(script: Script, value: ast.expr | None) -> bool:
    made = script.scopes.value(value)
    return isinstance(made, ast.Call) and script.scopes.name(made.func) == "torch.utils.data.TensorDataset"


def _picks(program: Script, data_set: ast.ClassDef) -> bool:
    """Whether `__getitem__` is one `return` of what it picks."""
    getters = [
        node for node in data_set.body if isinstance(node, ast.FunctionDef) and node.name == "__getitem__"
    ]
    if len(getters) != 1 or len(getters[0].body) != 1 or not isinstance(getters[0].body[0], ast.Return):
        return False
    result = getters[0].body[0].value
    parts = result.elts if isinstance(result, ast.Tuple) else [result]
    return all(isinstance(part, (ast.Subscript, ast.Name)) for part in parts)
