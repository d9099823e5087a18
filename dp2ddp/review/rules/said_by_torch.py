"""What torch itself refuses where it stands."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import values_of
from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected
from dp2ddp.review.own_file import literal

# dir(DistributedDataParallel(...)) without private names, of torch 2.15 (older ones have fewer)
OF_WRAPPERS = words("""
T_destination add_module apply batched_grad_copy bfloat16 broadcast_bucket_size broadcast_buffers bucket_bytes_cap
bucket_bytes_cap_default bucket_bytes_cap_list buffers call_super_init children compile cpu cuda device device_ids
device_type dim double dump_patches eval extra_repr finalize_backward find_unused_parameters float forward
forward_sync_buffers gather get_buffer get_extra_state get_parameter get_submodule gradient_as_bucket_view half ipu
is_multi_device_module join join_device join_hook join_process_group lazy_bucket_allocation load_state_dict logger
mixed_precision module modules modules_buffers mtia named_buffers named_children named_module_buffers named_modules
named_parameters no_sync output_device parameters parameters_to_ignore process_group reducer register_backward_hook
register_buffer register_comm_hook register_forward_hook register_forward_pre_hook register_full_backward_hook
register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
register_parameter register_state_dict_post_hook register_state_dict_pre_hook require_backward_grad_sync
require_forward_param_sync require_manual_backward_finalization requires_grad_ scatter set_extra_state set_submodule
share_memory should_finalize_after_backward skip_all_reduce_unused_params state_dict static_graph to to_empty
to_kwargs train training type use_side_stream_for_tensor_copies will_sync_module_buffers xpu zero_grad""")
BY_NAME = re.compile("^_*(has|get|set)attr_*$")
Refused = Iterator[tuple[ast.AST, dict[str, str]]]  # where, and words for what is said of it


def _several_devices(script: DDPScript) -> Refused:
    for wrap in script.wraps:
        ids = wrap.call.argument(1, "device_ids")
        values = script.file.values(ids)
        if ids is not None and values and all(_are_several(script, value) for value in values):
            yield ids, {}


def _are_several(script: DDPScript, value: ast.AST) -> bool:
    match value:
        case ast.Call(func=function, args=[inner]) if script.module.name(function) == "builtins.list":
            return _are_several(script, inner)
        case ast.Call(func=function, args=[ast.Call(func=count)]):
            names = script.module.name(function), script.module.name(count)
            return names == ("builtins.range", "torch.cuda.device_count")
    return isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) > 1


def _shuffled_twice(script: DDPScript) -> Refused:
    for loader in script.loaders:
        if loader.shuffle is not None and loader.sampler and literal(loader.shuffle) is True:
            yield loader.call.keyword("shuffle") or loader.shuffle, {}


def _forked(script: DDPScript) -> Refused:
    spawns = script.file.spawns if "nccl" in script.backends else ()
    sets = (call for call in script.module.calls if (call.name or "").endswith(".set_start_method"))
    for call in (*spawns, *sets) if spawns else ():
        if "fork" in map(literal, values_of(call.node)):
            yield call.node, {}


def _attributes(script: DDPScript) -> Refused:
    stored = (node.attr for node in script.module.all(ast.Attribute) if isinstance(node.ctx, ast.Store))
    known = OF_WRAPPERS.union(stored) if script.wraps else set()
    wraps = (wrap for wrap in script.wraps if wrap.is_torchs and not script.file.says(BY_NAME))
    around = (script.module.parents[mention] for wrap in wraps for mention in wrap.mentions)
    for used in (each for each in around if isinstance(each, ast.Attribute)):
        is_known = used.attr in known or used.attr.startswith("_")
        if not is_known and not any(script.file.around(used, ast.Try)):
            yield used, {"name": used.attr, "owner": script.file.text_of(used.value)}


def _results(script: DDPScript) -> Refused:
    for call in script.collectives:
        may_wait = call.keyword("async_op") is not None or len(call.node.args) > 3  # it may be the fifth
        if not may_wait and _is_read(script, call):
            yield call.node, {"name": (call.name or "").rpartition(".")[2]}


def _is_read(script: DDPScript, call: Call) -> bool:
    match script.module.parents[call.node]:
        case ast.Assign():
            return bool(script.flow.uses(call.node))
        case ast.Call(func=function):  # `torch.cat(all_gather(parts, x))`
            return (script.module.name(function) or "").startswith("torch.")
        case parent:
            return isinstance(parent, (ast.BinOp, ast.Attribute, ast.Subscript))


# What finds it, what is said, and what to do
REFUSED: Mapping[Callable[[DDPScript], Refused], tuple[str, str]] = {
    _several_devices: (
        "takes one device, and refuses several",
        "start a process for each device, and pass device_ids=[local_rank]",
    ),
    _shuffled_twice: (
        "ValueError: the sampler decides the order, and the loader is to shuffle as well",
        "leave it to the sampler: take shuffle=True out, or shuffle=(sampler is None) where there may be none",
    ),
    _forked: (
        "forks the ranks, and neither CUDA nor NCCL works in a forked process",
        'start them with torchrun, or by "spawn"',
    ),
    _attributes: (
        "the wrapper has no `{name}`",
        "ask the model inside: {owner}.module.{name}; what trains belongs into its forward",
    ),
    _results: (
        "{name}() works in place and returns None, which is used here",
        "call it on a line of its own, and go on with the tensor that it was given",
    ),
}


class RefusedByTorch(CheckRule):
    """torch refuses this: the run ends in an error here, or hangs.

    Finds

    - `device_ids` with several devices, or with all that there are: one process drives one device since torch 1.9;
    - a loader with `shuffle=True` and a `DistributedSampler`: "sampler option is mutually exclusive with shuffle";
    - ranks that are forked beside NCCL: "Cannot re-initialize CUDA in forked subprocess", or collectives that hang;
    - an attribute of a wrapper that only the model inside has;
    - the result of a collective, `loss = dist.all_reduce(loss)`: it works in place, and returns None.

    The first three end a run as it starts. An attribute, or None in the place of a tensor, ends it where it is used,
    which may be behind the first epoch.

    Found only where what decides can be read off: the list of devices, the start method, names that certainly are the
    wrapper. Silent where something sets the attribute, in `try` and next to `hasattr`; and with `async_op`.

    https://github.com/pytorch/examples/issues/936, https://github.com/NVIDIA/tacotron2/issues/168,
    https://github.com/pytorch/pytorch/issues/40403, https://github.com/ultralytics/yolov5/issues/90,
    https://github.com/pytorch/pytorch/issues/102435.
    """

    code, name = "DDP611", "refused-by-torch"
    examples = (
        *corrected("""
            # one device
            - model = DistributedDataParallel(net, device_ids=[0, 1])
            + model = DistributedDataParallel(net, device_ids=[rank])
        """),
        *corrected("""
            # ValueError
              sampler = DistributedSampler(data)
            - loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)
            + loader = DataLoader(data, batch_size=8, sampler=sampler)
        """),
        *corrected("""
            # model.module
              model = DistributedDataParallel(net)
            - features = model.extract_features(x)
            + features = model.module.extract_features(x)
        """),
        *corrected("""
            # None
            - loss = dist.all_reduce(loss)
            + dist.all_reduce(loss)
              print(loss.item())
        """),
    )

    def find(self, script: DDPScript) -> Found:
        for look, (message, advice) in REFUSED.items():
            for node, said in look(script):
                yield self.problem(node, what=message.format(**said), how=advice.format(**said))
