"""SyncBatchNorm is put into the model after it was wrapped.

Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper.

The wrapper has listed the layers' buffers when it was made. The new layers have buffers of their own, which it does not
know.

Found only where the name is certainly the wrapper.

https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
"""

from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, corrected


class SyncAfterWrap(CheckRule):
    message = "the model is wrapped already, and its wrapper will not know the new layers' buffers"
    advice = "convert the model before wrapping it"
    examples = corrected("""
        # before wrapping
          from torch.nn import SyncBatchNorm
        - model = DistributedDataParallel(net)
        - model = SyncBatchNorm.convert_sync_batchnorm(model)
        + net = SyncBatchNorm.convert_sync_batchnorm(net)
        + model = DistributedDataParallel(net)
    """)

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls:
            module = call.argument(0, "module")
            if module is None or not (call.name or "").endswith("SyncBatchNorm.convert_sync_batchnorm"):
                continue
            if any(wrap.means(module) or wrap.call.node is module for wrap in script.wraps):
                yield self.problem(call.node)
