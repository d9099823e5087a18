"""What torch refuses in the first second of a run: a table of rules, each with its page."""

import ast
import re

from dp2ddp.codemod.edits import DropArgument
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.review.check_rule import (
    Call,
    CheckRule,
    DDPScript,
    Found,
    Loader,
    corrected,
    literal,
    mended,
    right,
    wrong,
)


class SeveralDeviceIds(CheckRule):
    """DistributedDataParallel takes one device: several are refused.

    Finds `device_ids` with two devices or more, or with all that there are.

    One process drove several devices with the first versions only; torch raises "device_ids can only be None or contain
    a single element" since 1.9.

    Found where the list can be read off, itself or by a name that is bound to nothing else.

    https://github.com/pytorch/examples/issues/936, https://github.com/pytorch/pytorch/pull/54454.
    """

    code, name = "DDP611", "several-device-ids"
    message = "takes one device, and refuses several"
    advice = "start a process for each device, and pass device_ids=[local_rank]"
    examples = (
        *corrected("""
            # one device
            - model = DistributedDataParallel(net, device_ids=[0, 1])
            + model = DistributedDataParallel(net, device_ids=[rank])
        """),
        right("model = DistributedDataParallel(net)"),
    )

    def find(self, script: DDPScript) -> Found:
        for wrap in script.wraps:
            ids = wrap.call.argument(1, "device_ids")
            values = script.file.values(ids)
            if ids is not None and values and all(_are_several(script, value) for value in values):
                yield self.problem(ids)


def _are_several(script: DDPScript, value: ast.AST) -> bool:
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return len(elements) > 1
        case ast.Call(func=function, args=[inner]):
            if script.module.name(function) == "builtins.list":
                return _are_several(script, inner)
            called = script.module.name(getattr(inner, "func", None))
            return script.module.name(function) == "builtins.range" and called == "torch.cuda.device_count"
    return False


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


class AttributeOfTheWrapper(CheckRule):
    """The wrapper has no such attribute: only the model inside has.

    Finds an attribute of a wrapper that neither `nn.Module` nor DistributedDataParallel has.

    AttributeError: 'DistributedDataParallel' object has no attribute ...

    Found only where the name is certainly the wrapper, and nothing sets the attribute; silent in `try` and next to
    `hasattr`.

    https://github.com/ultralytics/yolov5/issues/90, https://github.com/Project-MONAI/GenerativeModels/issues/354.
    """

    code, name = "DDP615", "attribute-of-the-wrapper"
    message = "the wrapper has no `{name}`"
    advice = "ask the model inside: {owner}.module.{name}; what trains belongs into its forward"
    examples = corrected("""
        # model.module
          model = DistributedDataParallel(net)
          model.train()
        - features = model.extract_features(x)
        + features = model.module.extract_features(x)
    """)

    def find(self, script: DDPScript) -> Found:
        if script.file.says(BY_NAME):
            return
        attributes = script.module.all(ast.Attribute) if script.wraps else []
        stored = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
        for node in attributes:
            if node.attr in OF_WRAPPERS or node.attr in stored or node.attr.startswith("_"):
                continue
            wrap = script.wrap_of(node.value)
            in_try = any(script.file.around(node, ast.Try))
            if wrap and wrap.is_torchs and not in_try:
                yield self.problem(node, name=node.attr, owner=script.file.text_of(node.value))


class ForkedRanks(CheckRule):
    """Ranks are forked: NCCL and CUDA do not outlive a fork.

    Finds `start_processes(..., start_method="fork")`, and `set_start_method("fork")` beside `mp.spawn` or `Process`, in
    a file that names the NCCL backend.

    CUDA cannot be used in a forked process whose parent has used it ("Cannot re-initialize CUDA in forked subprocess"),
    and NCCL's threads are not there after a fork: collectives hang.

    Silent where the start method is not written out.

    https://github.com/pytorch/pytorch/issues/40403, https://github.com/facebookresearch/PointContrast/issues/15.
    """

    code, name = "DDP621", "forked-ranks"
    message = "forks the ranks, and neither CUDA nor NCCL works in a forked process"
    advice = 'start them with torchrun, or by "spawn"'
    examples = corrected("""
        # spawn
          import torch.multiprocessing as mp
          def worker(rank):
              dist.init_process_group("nccl", rank=rank, world_size=2)
          if __name__ == "__main__":
        -     mp.start_processes(worker, nprocs=2, start_method="fork")
        +     mp.spawn(worker, nprocs=2)
    """)

    def find(self, script: DDPScript) -> Found:
        spawns = script.file.spawns if "nccl" in script.backends else ()
        sets = (call for call in script.module.calls if (call.name or "").endswith(".set_start_method"))
        methods = [*((each, each.argument(None, "start_method")) for each in spawns)]
        methods += ((each, each.argument(0, "method")) for each in sets if spawns)
        for call, method in methods:
            if literal(method) == "fork":
                yield self.problem(call.node)


class SamplerAndShuffle(CheckRule):
    """A loader that has a sampler cannot shuffle as well.

    Finds `DataLoader(..., shuffle=True, sampler=...)` with a `DistributedSampler`.

    ValueError: sampler option is mutually exclusive with shuffle.

    `--fix` takes `shuffle=True` out where a sampler that shuffles is made in the same call, or under no condition above
    it: the script did not run before. Elsewhere its name may be None.

    https://github.com/NVIDIA/tacotron2/issues/168, https://github.com/ultralytics/yolov3/issues/231.
    """

    code, name = "DDP629", "sampler-and-shuffle"
    fixes = True
    message = "ValueError: the sampler decides the order, and the loader is to shuffle as well"
    advice = (
        "leave it to the sampler: take shuffle=True out, or shuffle=(sampler is None) where there may be none"
    )
    examples = (
        mended("""
              from torch.utils.data import DistributedSampler
              sampler = DistributedSampler(data)
            - loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)
            + loader = DataLoader(data, batch_size=8, sampler=sampler)
        """),
        *corrected("""
            # ValueError
              from torch.utils.data import DistributedSampler
              sampler = DistributedSampler(data) if distributed else None
            - loader = DataLoader(data, batch_size=8, shuffle=True, sampler=sampler)
            + loader = DataLoader(data, batch_size=8, shuffle=sampler is None, sampler=sampler)
        """),
    )

    def find(self, script: DDPScript) -> Found:
        for loader in script.loaders:
            if loader.shuffle is None or loader.sampler is None or literal(loader.shuffle) is not True:
                continue
            keyword = loader.call.keyword("shuffle")
            fix: tuple[DropArgument, ...] = ()
            if keyword and _never_ran(script, loader):
                fix = (DropArgument(keyword, loader.call.node, "the sampler shuffles"),)
            yield self.problem(keyword or loader.shuffle, fix)


def _never_ran(script: DDPScript, loader: Loader) -> bool:
    """Whether the loader always gets a sampler that shuffles, and nothing catches the error that it then raises."""
    sampler = loader.certain_sampler
    is_tried = any(script.file.around(loader.call.node, ast.Try))
    return sampler is not None and sampler.argument(3, "shuffle") is None and not is_tried


class ResultOfACollective(CheckRule):
    """The collective has no result: it works in place, and returns None.

    Finds `loss = dist.all_reduce(loss)` and the like, where the result is used.

    The collectives of torch.distributed change their tensors in place, and return None (with `async_op=True` a handle).
    So the name is None from there on: AttributeError or TypeError in the next line.

    Silent with `async_op`. The functions of `torch.distributed.nn` return tensors, and are left alone.

    https://github.com/pytorch/pytorch/issues/102435.
    """

    code, name = "DDP630", "result-of-a-collective"
    message = "{name}() works in place and returns None, which is used here"
    advice = "call it on a line of its own, and go on with the tensor that it was given"
    examples = (
        *corrected("""
            # None
            - loss = dist.all_reduce(loss)
            + dist.all_reduce(loss)
              print(loss.item())
        """),
        wrong("# None\nmean = dist.all_reduce(loss) / dist.get_world_size()"),
        right("work = dist.all_reduce(other, async_op=True)\nwork.wait()"),
    )

    def find(self, script: DDPScript) -> Found:
        for call in script.collectives:
            may_wait = call.keyword("async_op") is not None or len(call.node.args) > 3  # it may be the fifth
            if not may_wait and _is_used(script, call):
                yield self.problem(call.node, name=(call.name or "").rpartition(".")[2])


def _is_used(script: DDPScript, call: Call) -> bool:
    parent = script.module.parents[call.node]
    if isinstance(parent, ast.Assign):
        return bool(script.flow.uses(call.node))
    if isinstance(parent, ast.Call):  # `torch.cat(all_gather(parts, x))`
        return (script.module.name(parent.func) or "").startswith("torch.")
    return isinstance(parent, (ast.BinOp, ast.Attribute, ast.Subscript))
