"""DDP615: an attribute that the model has and its wrapper has not."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

# dir(DistributedDataParallel(...)) without private names, of torch 2.15 (older ones have fewer)
_NAMES = """
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
to_kwargs train training type use_side_stream_for_tensor_copies will_sync_module_buffers xpu zero_grad"""
OF_WRAPPERS = frozenset(_NAMES.split())


class AttributeOfTheWrapper(CheckRule):
    """The wrapper has no such attribute: only the model inside has.

    ## What it does
    Finds an attribute of a wrapper that neither `nn.Module` nor DistributedDataParallel has.

    ## Why
    AttributeError: 'DistributedDataParallel' object has no attribute ...

    ## Safety
    Found only where the name is certainly the wrapper, and nothing sets the attribute; silent in `try` and next
    to `hasattr`.

    ## References
    https://github.com/ultralytics/yolov5/issues/90,
    https://github.com/Project-MONAI/GenerativeModels/issues/354.
    """

    code = "DDP615"
    name = "attribute-of-the-wrapper"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                features = model.extract_features(x)
            """,
            message="model.module",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                features = model.module.extract_features(x)
                model.train()
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if any(name.strip("_") in ("hasattr", "getattr", "setattr") for name in script.names):
            return
        stored = {
            node.attr
            for node in script.module.nodes(ast.Attribute)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        for node in script.module.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if node.attr in OF_WRAPPERS or node.attr in stored or node.attr.startswith("_"):
                continue
            wrap = script.wrap_behind(node.value)
            in_try = any(isinstance(parent, ast.Try) for parent in script.module.around(node))
            if wrap is not None and (wrap.name or "").startswith("torch.") and not in_try:
                text = script.file.text_of(node.value)
                yield Problem(
                    node,
                    f"the wrapper has no `{node.attr}`",
                    f"ask the model inside: {text}.module.{node.attr}; what trains belongs into its forward",
                )
