"""Harmless variants: right ports that look different. None may be called different.

What is done to one port stands in tests/mutations/harmless.diff, what is done to several here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.diffs import cases
from tests.mutations.suite import Change, port

_WRAP = "device_ids=[rank])"
_JOIN = 'dist.init_process_group("nccl")'
_STEP = "        optimizer.step()\n"
_WRAPPED = ("mlp", "conv_bn", "accumulate", "masked", "sampler", "dropout", "contrastive")
_IN_MANY = (
    ("gradients are views of buckets", _WRAPPED, _WRAP, "device_ids=[rank], gradient_as_bucket_view=True)"),
    # not in accumulate: no_sync and a static graph, torch refuses
    (
        "a static graph",
        tuple(base for base in _WRAPPED if base != "accumulate"),
        _WRAP,
        "device_ids=[rank], static_graph=True)",
    ),
    ("unused parameters are looked for", _WRAPPED, _WRAP, "device_ids=[rank], find_unused_parameters=True)"),
    ("small buckets", _WRAPPED, _WRAP, "device_ids=[rank], bucket_cap_mb=0.0001)"),
    ("no device_ids", ("mlp", "conv_bn"), f", {_WRAP}", ")"),
    ("two threads", ("conv_bn", "manual", "gan"), _JOIN, f"torch.set_num_threads(2)\n{_JOIN}"),
    ("backend by default", ("early", "total"), _JOIN, "dist.init_process_group()"),
    ("barriers", ("mlp", "conv_bn"), _STEP, f"{_STEP}        dist.barrier()\n"),
)


def _in_many() -> Iterator[Change]:
    for name, bases, old, new in _IN_MANY:
        for base in bases:
            assert port(base).count(old) == 1, f"{name}: not once in {base}"
            yield Change(f"{base}: {name}", base, port(base).replace(old, new))


HARMLESS = (*_in_many(), *map(Change.of, cases(Path(__file__).with_suffix(".diff"))))
