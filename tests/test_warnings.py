"""Which warnings are errors in these tests: those that our own code causes, but no deprecation (pyproject.toml)."""

from __future__ import annotations

import warnings

import pytest

OURS = (
    "dp2ddp.runtime.virtual_cuda.distributed",
    "dp2ddp.templates.ddp",
    "templates.ddp",
    "tests.runtime.virtual_cuda.test_nccl",
    "ranks",
)
DEPRECATED = "`torch.distributed.all_gather_into_tensor` is deprecated"


def warn(category: type[Warning], module: str, text: str) -> list[warnings.WarningMessage]:
    """Warn of a line of that module, by the filters of the tests; returns what is listed at the end of their run."""
    with warnings.catch_warnings(record=True) as listed:
        warnings.warn_explicit(text, category, "file.py", 1, module=module, registry={})
    return listed


@pytest.mark.parametrize("module", OURS)
@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning])
def test_what_our_own_code_causes_is_an_error(category: type[Warning], module: str) -> None:
    with pytest.raises(category, match="a batch"):
        warn(category, module, "a batch was dropped")


@pytest.mark.parametrize(
    "module", ["torch.distributed.c10d_logger", "torch.nn.modules.module", "accelerate.state"]
)
@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning])
def test_what_others_warn_of_in_their_own_code_is_listed(category: type[Warning], module: str) -> None:
    assert len(warn(category, module, "something new")) == 1


@pytest.mark.parametrize("module", ["torch.distributed.c10d_logger", *OURS])
@pytest.mark.parametrize(
    "category", [FutureWarning, DeprecationWarning, PendingDeprecationWarning, UserWarning]
)
def test_no_deprecation_is_an_error_wherever_it_is_met(category: type[Warning], module: str) -> None:
    """A release of torch that comes out tomorrow may deprecate what these tests call."""
    assert len(warn(category, module, f"In the next release:\n{DEPRECATED}")) == 1


@pytest.mark.parametrize("category", [ResourceWarning, pytest.PytestUnraisableExceptionWarning])
def test_what_is_left_open_or_fails_at_an_end_is_an_error(category: type[Warning]) -> None:
    with pytest.raises(category):
        warn(category, "anywhere", "unclosed file")
