"""What only computes: functions and methods that change nothing, print nothing, and draw on no stream of the host.

One table for proofs about forwards (traces.py). What is not in it may do anything.
"""

from __future__ import annotations

from dp2ddp.codemod.facts.tables import of

COMPUTING = {  # what is called by name and only computes
    *of(
        "builtins",
        "len range zip enumerate list tuple dict set int float bool str slice super max min sum abs",
    ),
    *of(
        "builtins",
        "isinstance issubclass sorted reversed round any all map filter type format repr hasattr pow",
    ),
    *of("builtins", "getattr callable divmod ValueError TypeError NotImplementedError RuntimeError KeyError"),
    *of("builtins", "AssertionError Exception IndexError complex frozenset object"),
    *of("collections", "OrderedDict namedtuple defaultdict"),
    *of("functools", "reduce partial"),
    *of("einops", "rearrange reduce repeat einsum"),
    *of(
        "torch.nn",
        "Identity ReLU ReLU6 LeakyReLU ELU SELU GELU SiLU Sigmoid Tanh Softmax LogSoftmax Softplus Flatten",
    ),
    *of(
        "torch.nn",
        "Dropout Dropout2d MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool1d AdaptiveAvgPool2d",
    ),
    *of(
        "torch.nn", "AdaptiveMaxPool2d Upsample ReflectionPad2d ZeroPad2d MSELoss L1Loss SmoothL1Loss NLLLoss"
    ),
    *of("torch.nn", "CrossEntropyLoss BCELoss BCEWithLogitsLoss KLDivLoss CosineSimilarity PairwiseDistance"),
    *of("torch.autograd", "Variable"),
    *of("torch.cuda", "is_available amp.autocast"),
    "torch.amp.autocast",
}
COMPUTING_MODULES = (
    *("math.", "numpy.", "torch.nn.functional.", "torch.linalg.", "torch.fft.", "torch.special."),
    *("torch.nn.utils.rnn.", "torchvision.ops."),
)
# Of torch's own functions, these do more than compute from what they are given.
TORCH_MORE = {
    *of("torch", "save load manual_seed seed initial_seed get_rng_state compile fork from_file Generator"),
    *of("torch", "batch_norm instance_norm normal"),
}
FUNCTIONAL_MORE = of("torch.nn.functional", "batch_norm instance_norm")  # change averages that they are given
NUMPY_MORE = ("numpy.random", "numpy.save", "numpy.load", "numpy.memmap", "numpy.put", "numpy.copyto")
DECORATORS = {
    *of("builtins", "property staticmethod classmethod"),
    *of("torch", "no_grad enable_grad"),
    *of("torch.cuda.amp", "custom_fwd custom_bwd autocast"),
    *of("torch.amp", "custom_fwd custom_bwd"),
    "abc.abstractmethod",
}
METHODS = {  # of tensors, texts, collections and recurrent layers
    *of("", "abs addcmul all allclose amax amin any argmax argmin argsort baddbmm bernoulli bmm"),
    *of("", "bool byte ceil char chunk clamp clone contiguous cos cpu cuda cummax cumprod cumsum"),
    *of("", "detach diag diagonal dim div dot double eq erf exp expand expand_as flatten flip float"),
    *of("", "floor fmod gather ge get_device gt half index_select int inverse is_contiguous"),
    *of("", "is_floating_point isnan item kthvalue le lerp log log1p log2 log_softmax logical_and"),
    *of("", "logical_not new logical_or logsumexp long lt masked_fill masked_select matmul max maximum"),
    *of("", "mean median min minimum mm movedim mul multinomial mv narrow ndimension ne neg nelement"),
    *of("", "new_empty new_full new_ones new_tensor new_zeros nonzero norm numel permute pinverse pow"),
    *of("", "prod ravel reciprocal relu renorm repeat repeat_interleave reshape roll rot90 round rsqrt"),
    *of("", "scatter scatter_add select sigmoid sign sin size softmax split sqrt square squeeze"),
    *of("", "std stride sub sum t tan tanh to tolist topk trace transpose tril triu type type_as"),
    *of("", "unbind unfold unique unsqueeze var view view_as where short swapaxes items keys values"),
    *of("", "get format join startswith endswith lower upper strip replace index count copy"),
    *of("", "flatten_parameters save_for_backward children modules named_children named_modules"),
}
LAYERS = {  # of models that libraries make; their classes are looked at when the script runs
    *of("", "conv1 bn1 relu maxpool layer0 layer1 layer2 layer3 layer4 avgpool fc features classifier"),
    *of("", "backbone encoder decoder head body forward"),
}


def computes(name: str) -> bool:
    """Whether a function that has a name only computes."""
    if name in COMPUTING:
        return True
    module, _, last = name.rpartition(".")
    if module == "torch":
        return name not in TORCH_MORE and not last.startswith(("_", "set_", "use_"))
    if module == "torch.cuda":
        return last.endswith("Tensor")
    if module == "torch.nn.functional":
        return name not in FUNCTIONAL_MORE
    return name.startswith(COMPUTING_MODULES) and not name.startswith(NUMPY_MORE)
