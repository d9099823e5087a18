"""What methods only read, by their names: of containers, texts, tensors and modules; and what functions are given and leave alone."""


def words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


def of(home: str, names: str) -> tuple[str, ...]:
    """Names of one module, class or object."""
    return tuple(f"{home}.{name}" for name in names.split())


def homes(names: str) -> tuple[str, ...]:
    """Modules and objects, as what their names' names begin with."""
    return tuple(f"{name}." for name in names.split())


# Give parts of what they are called of, or the thing itself: who changes these, changes it.
VIEWS = words(
    "get items values keys data detach view view_as reshape reshape_as expand expand_as flatten unflatten squeeze",
    "unsqueeze transpose t T mT permute movedim swapaxes narrow select chunk split unbind diagonal unfold contiguous",
    "to cpu cuda type float double half bfloat16 long int bool numpy real imag requires_grad_ children modules",
    "named_children named_modules parameters named_parameters buffers named_buffers get_submodule get_parameter",
    "max min type_as asarray as_tensor from_numpy as_strided broadcast_to ravel getattr vars type pop popitem setdefault next iter",
)
_OF_CONTAINERS = words(
    "get items values keys copy count index most_common union intersection difference issubset issuperset elements",
    "isdisjoint qsize empty full",
)
_OF_TEXTS = words(
    "format join split rsplit strip lstrip rstrip lower upper title startswith endswith replace find encode decode",
    "isdigit splitlines zfill",
)
_OF_TENSORS = words(
    "abs acos add addmm all allclose amax amin aminmax any argmax argmin argsort asin atan bmm bool broadcast_to ceil",
    "chunk clamp clip clone contiguous cos cosh cpu cuda cumprod cumsum data_ptr det detach diag diagonal diff dim",
    "dist div dot dtype double element_size eq equal erf exp expand expand_as flatten flip float floor",
    "fmod gather ge get_device greater gt half histc index_add index_copy index_fill index_select int inverse",
    "is_contiguous is_floating_point isfinite isinf isnan item le lerp less log log10 log1p log2 log_softmax",
    "logical_and logical_not logical_or logsumexp long lt masked_fill masked_scatter masked_select matmul max mean",
    "median min mm movedim mul multinomial mv nan_to_num narrow ndimension ne neg new new_empty new_full new_ones",
    "new_tensor new_zeros nonzero norm numel numpy outer permute pinverse pow prod quantile reciprocal relu remainder",
    "repeat repeat_interleave reshape reshape_as roll rot90 round rsqrt scatter scatter_add select sigmoid sign sin",
    "sinh size softmax sort split sqrt square squeeze std stride sub sum svd t take tan tanh tile to tolist topk trace",
    "transpose tril triu trunc type type_as unbind unflatten unfold unique unsqueeze var view view_as where zero_grad",
    "bfloat16 is_cuda storage untyped_storage nelement as_strided baddbmm cross einsum floor_divide heaviside hypot",
    "astype flatten_parameters tobytes nonzero searchsorted cumprod argpartition argwhere ndim ravel",
    "logit minimum maximum movedim msort mvlgamma nanmean nansum polygamma ravel sgn signbit swapaxes true_divide",
)
_OF_MODULES = words(
    "parameters named_parameters buffers named_buffers children named_children modules named_modules state_dict",
    "get_submodule get_parameter get_buffer forward extra_repr train eval float half double cuda cpu to",
)
_OF_CONTEXTS = words("save_for_backward mark_dirty mark_non_differentiable set_materialize_grads")
READING = _OF_CONTAINERS | _OF_TEXTS | _OF_TENSORS | _OF_MODULES | _OF_CONTEXTS

# Change what they are called of, also where they are mentioned and called later: `add = self.seen.append`.
FILLING = words(
    "append extend insert remove pop popitem clear sort reverse update setdefault add discard appendleft extendleft",
    "popleft rotate subtract move_to_end difference_update intersection_update symmetric_difference_update put",
    "put_nowait get_nowait fill itemset setfield frombytes fromlist write writelines",
)

# Functions that make what changes when it is looked at.
CONSUMED = words("iter zip map filter enumerate reversed defaultdict ChainMap cycle count chain")
# Functions that look at what they are given, and leave it as it is; those of torch end with an underscore otherwise.
LOOKING = words(
    "len range zip enumerate isinstance issubclass getattr hasattr float int str bool bytes complex list tuple dict",
    "set frozenset min max sum sorted any all abs round reversed super type repr format slice callable map filter id",
    "divmod pow iter vars hash object ord chr property staticmethod NotImplementedError ValueError RuntimeError",
    "TypeError KeyError IndexError AssertionError Exception AttributeError ImportError NotImplemented Warning",
)
# Of those, what may change what it is given, beside what knowledge/changing.py names.
CHANGING_HOMES = homes("operator collections itertools random heapq bisect")
# Their functions may give what they are given, or parts of it.
HANDING_ON = ("operator.", "contextlib.", "functools.", "itertools.", "random.", "copy.copy")
NEW_CONTAINERS = words("list tuple dict set frozenset zip enumerate sorted reversed map filter OrderedDict")
COMPUTING_HOMES = (
    *homes(
        "torch torchvision torchaudio math numpy cmath copy itertools functools einops scipy collections typing"
    ),
    *homes("operator string re timm random types contextlib dataclasses enum abc numbers time warnings PIL"),
    "logging.getLogger",
)
MODULE_HOMES = homes("torch.nn torchvision timm transformers pretrainedmodels segmentation_models_pytorch")
