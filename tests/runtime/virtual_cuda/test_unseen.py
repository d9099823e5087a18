"""What torch makes below Python, where no mode sees it, is where it would be on real devices."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.autograd import forward_ad

from .conftest import Install

# torch >= 2.10 tells scripts that torch.jit is old, and so is what its own jacobian does
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{start}")
    for start in (
        "`torch.jit:FutureWarning",
        "Attempted to insert:UserWarning",
        "Using -1:FutureWarning",
        "Sparse:UserWarning",
    )
]


@pytest.fixture(autouse=True)
def _two_devices(virtual: Install) -> None:
    virtual(2)


CUDA_0, CUDA_1, CPU = torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")
Devices = list[torch.device]


def leaf(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (3,), device=device, requires_grad=True)


def devices(*tensors: Any) -> Devices:
    """Of tensors in tuples and lists, too."""
    found: Devices = []
    for tensor in tensors:
        found += [tensor.device] if isinstance(tensor, torch.Tensor) else devices(*tensor)
    return found


# ---- torch.autograd.grad


def test_a_gradient_is_where_its_input_is() -> None:
    there, host, here = leaf(CUDA_1), leaf(CPU), leaf(CUDA_0)
    loss = (there.to(CUDA_0) * host.to(CUDA_0) * here).sum()
    assert devices(torch.autograd.grad(loss, (there, host, here))) == [CUDA_1, CPU, CUDA_0]


def test_gradients_that_the_engine_shares_are_apart() -> None:
    """Where nothing is computed in between, the engine hands on one tensor; CUDA has a copy between devices."""
    there, host = leaf(CUDA_1), leaf(CPU)
    first, second = torch.autograd.grad((there.cpu() + host).sum(), (there, host))
    assert devices(first, second) == [CUDA_1, CPU]
    first.zero_()
    assert second.tolist() == [1, 1, 1]


def test_gradients_of_numbers_on_the_host() -> None:
    there, host = torch.tensor(2.0, device=CUDA_1, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    loss = (there * host * leaf(CUDA_1)).sum()
    assert devices(torch.autograd.grad(loss, [there, host])) == [CUDA_1, CPU]


def test_gradients_that_are_zero_or_missing() -> None:
    used, unused = leaf(CUDA_1), leaf(CPU)
    made = torch.autograd.grad(used.sum(), (used, unused), allow_unused=True, materialize_grads=True)
    assert devices(made) == [CUDA_1, CPU]
    assert torch.autograd.grad(used.sum(), (used, unused), allow_unused=True)[1] is None


def test_batched_gradients() -> None:
    host = leaf(CPU)
    basis = torch.eye(3, device=CUDA_1)
    (jacobian,) = torch.autograd.grad(host.to(CUDA_1) * 2, host, basis, is_grads_batched=True)
    assert jacobian.device == CPU
    assert jacobian.tolist() == (2 * torch.eye(3)).tolist()


def test_gradients_of_gradients() -> None:
    there = leaf(CUDA_1)
    (first,) = torch.autograd.grad((there.to(CUDA_0) ** 3).sum(), there, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), there)
    assert devices(first, second) == [CUDA_1, CUDA_1]
    assert (there - second).tolist() == [-5, -5, -5]


def test_a_gradient_penalty_on_a_batch_of_the_host() -> None:
    """The batch stays on the CPU, DataParallel takes its chunks to the devices."""
    net = nn.DataParallel(nn.Linear(3, 1).cuda())
    batch = torch.randn(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(batch).sum(), batch, create_graph=True)
    assert gradient.device == CPU
    penalty = (gradient + 0.01 * torch.ones(4, 3)).norm(2, dim=1).mean()
    penalty.backward()


def test_parameters_and_outputs_on_another_device() -> None:
    net = nn.DataParallel(nn.Linear(3, 1).cuda(), output_device=1)
    loss = net(torch.ones(4, 3)).sum()
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    assert devices(loss, gradients) == [CUDA_1, CUDA_0, CUDA_0]
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter -= gradient


A = torch.autograd.functional


DERIVED = {
    "vjp": lambda x: A.vjp(lambda x: (x**2).sum(), x),
    "jvp": lambda x: A.jvp(lambda x: x**2, x, torch.ones_like(x)),
    "jacobian": lambda x: A.jacobian(lambda x: x**2, x),
    "jacobian in one go": lambda x: A.jacobian(lambda x: x**2, x, vectorize=True),
    "jacobian, forward": lambda x: A.jacobian(lambda x: x**2, x, vectorize=True, strategy="forward-mode"),
    "hessian": lambda x: A.hessian(lambda x: (x**3).sum(), x),
    "hvp": lambda x: A.hvp(lambda x: (x**3).sum(), x, torch.ones_like(x)),
    "vhp": lambda x: A.vhp(lambda x: (x**3).sum(), x, torch.ones_like(x)),
}


@pytest.mark.parametrize("make", DERIVED.values(), ids=DERIVED)
def test_derivatives_of_a_function(make: Callable[[torch.Tensor], Any]) -> None:
    assert set(devices(make(torch.ones(3, device=CUDA_1)))) == {CUDA_1}


def test_a_jacobian_of_two_inputs_apart() -> None:
    jacobians = A.jacobian(
        lambda a, b: a.to(CUDA_0) * b.to(CUDA_0), (torch.ones(3, device=CUDA_1), torch.ones(3))
    )
    assert devices(jacobians) == [CUDA_1, CPU]


# ---- torch.func


f = torch.func


TRANSFORMED = {
    "grad": lambda x: f.grad(lambda x: (x**2).sum())(x),
    "grad through another device": lambda x: f.grad(lambda x: (x.to(CUDA_0) ** 2).sum())(x),
    "grad_and_value": lambda x: f.grad_and_value(lambda x: (x**2).sum())(x),
    "grad twice": lambda x: f.grad(lambda x: f.grad(lambda y: (y**3).sum())(x).sum())(x),
    "vjp": lambda x: f.vjp(lambda x: x**2, x)[1](torch.ones_like(x)),
    "jvp": lambda x: f.jvp(lambda x: x**2, (x,), (torch.ones_like(x),)),
    "linearize": lambda x: f.linearize(lambda x: x**2, x)[1](torch.ones_like(x)),
    "jacrev": lambda x: f.jacrev(lambda x: x**2)(x),
    "jacrev in chunks": lambda x: f.jacrev(lambda x: x**2, chunk_size=1)(x),
    "jacfwd": lambda x: f.jacfwd(lambda x: x**2)(x),
    "hessian": lambda x: f.hessian(lambda x: (x**2).sum())(x),
    "functionalize": lambda x: f.functionalize(lambda x: x.clone().add_(1))(x),
    "vmap": lambda x: torch.vmap(lambda row: row * 2)(x.expand(2, 3)),
    "vmap in chunks": lambda x: torch.vmap(lambda row: row * 2, chunk_size=1)(x.expand(2, 3)),
    "vmap of columns": lambda x: torch.vmap(lambda row: row.sum(), in_dims=1)(x.expand(2, 3)),
}


@pytest.mark.parametrize("make", TRANSFORMED.values(), ids=TRANSFORMED)
def test_transforms_of_functions(make: Callable[[torch.Tensor], Any]) -> None:
    assert set(devices(make(torch.ones(3, device=CUDA_1)))) == {CUDA_1}


def test_what_a_transformed_function_sees_and_gives() -> None:
    seen: Devices = []

    def function(row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(row.device)
        return (row + torch.ones(3, device=row.device)).to(CUDA_0), row.cpu()

    assert devices(torch.vmap(function)(torch.ones(2, 3, device=CUDA_1))) == [CUDA_0, CPU]
    f.grad(lambda x: function(x)[0].sum())(torch.ones(3, device=CUDA_1))
    assert seen == [CUDA_1, CUDA_1]


def test_a_random_transform_draws_from_the_devices_stream() -> None:
    host, device = torch.get_rng_state(), torch.cuda.get_rng_state(1)
    drop = torch.vmap(lambda row: F.dropout(row), randomness="different")
    assert drop(torch.ones(2, 3, device=CUDA_1)).device == CUDA_1
    assert torch.equal(torch.get_rng_state(), host)
    assert not torch.equal(torch.cuda.get_rng_state(1), device)


def test_functional_calls_of_stacked_models() -> None:
    models = [nn.Linear(3, 2).cuda(1) for _ in range(2)]
    parameters, buffers = f.stack_module_state(models)
    batch = torch.ones(4, 3, device=CUDA_1)

    def call(parameters: Any, buffers: Any, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = f.functional_call(models[0], (parameters, buffers), (batch,))
        return output

    assert torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, batch).device == CUDA_1
    each = torch.vmap(f.grad(lambda *args: call(*args).sum()), in_dims=(None, None, 0))
    gradients = each(dict(models[0].named_parameters()), {}, batch)
    assert set(devices(*gradients.values())) == {CUDA_1}


def test_transforms_in_a_replica_are_gathered() -> None:

    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(f.grad(lambda row: (self.energy(row) ** 2).sum()))(x)

    net = nn.DataParallel(Score().cuda())
    output = net(torch.ones(4, 3))
    output.sum().backward()
    assert devices(output, net.module.energy.weight.grad) == [CUDA_0, CUDA_0]


# ---- hooks, saved tensors, Functions


def test_hooks_of_modules_and_tensors() -> None:
    seen: Devices = []
    layer, batch = nn.Linear(3, 3).cuda(1), leaf(CUDA_1, 2, 3)
    layer.register_full_backward_hook(lambda m, before, after: seen.extend(devices(before, after)))
    layer.register_full_backward_pre_hook(lambda m, after: seen.extend(devices(after)))
    batch.register_post_accumulate_grad_hook(lambda tensor: seen.extend(devices(tensor.grad)))
    layer.weight.register_hook(lambda gradient: seen.append(gradient.device))
    torch.autograd.graph.register_multi_grad_hook([layer.weight], lambda all_: seen.extend(devices(*all_)))
    layer(batch).to(CUDA_0).sum().backward()
    assert seen == [CUDA_1] * 6


def test_the_hook_of_old_scripts_and_of_nodes() -> None:
    """What no rule knows is where the loss is."""
    seen: Devices = []
    layer = nn.Linear(3, 3).cuda(1)
    layer.register_backward_hook(lambda m, before, after: seen.extend(devices(after)))
    with pytest.warns(FutureWarning, match="non-full backward hook"):
        output = layer(leaf(CUDA_1, 2, 3)) * 2
    output.grad_fn.register_hook(lambda before, after: seen.extend(devices(after)))
    output.cpu().sum().to(CUDA_0).backward()
    assert seen == [CUDA_0, CUDA_0]


def test_hooks_on_two_devices_are_given_tensors_of_their_own() -> None:
    kept: list[torch.Tensor] = []
    there, host = leaf(CUDA_1), leaf(CPU)
    for tensor in (there, host):
        tensor.register_hook(kept.append)
    (there.cpu() + host).sum().backward()
    assert sorted(map(str, devices(kept))) == ["cpu", "cuda:1"]


class Twice(torch.autograd.Function):
    """Two inputs, two outputs; tells where everything is."""

    seen: Devices = []
    generate_vmap_rule = True

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        Twice.seen += devices(a, b)
        return a * 2, b * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        Twice.seen += devices(grads, ctx.saved_tensors)
        return tuple(grad * 2 for grad in grads)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> Any:
        Twice.seen += devices(tangents)
        return tuple(tangent * 2 for tangent in tangents)


@pytest.fixture
def seen() -> Devices:
    Twice.seen.clear()
    return Twice.seen


def test_a_function_is_given_gradients_where_its_outputs_are(seen: Devices) -> None:
    a, b = Twice.apply(leaf(CUDA_1) * 1, leaf(CPU) * 1)
    (a.cpu() + b).sum().backward()
    assert devices(a, b) == [CUDA_1, CPU]
    assert seen == [CUDA_1, CPU] * 3


def test_a_function_under_transforms(seen: Devices) -> None:
    there = torch.ones(2, 3, device=CUDA_1)
    assert set(devices(torch.vmap(Twice.apply)(there, there))) == {CUDA_1}
    assert f.grad(lambda x: Twice.apply(x, x)[0].sum())(there).device == CUDA_1
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(there, there * 1)
        output, _ = Twice.apply(dual, dual)
        assert devices(*forward_ad.unpack_dual(output)) == [CUDA_1, CUDA_1]
    assert set(seen) == {CUDA_1}


def test_what_is_packed_goes_to_the_host_and_back() -> None:
    """A hook that packs is called in the middle of a torch function; it may use devices, too."""
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        first = (leaf(CUDA_1) * 1).exp().sum()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: (torch.zeros(1, device=CUDA_1), tensor.cpu()),
        lambda packed: packed[1].to(packed[0].device),
    ):
        second = (leaf(CUDA_1) * 1).exp().sum()
    first.backward()
    second.backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_runs_again_on_its_device(use_reentrant: bool) -> None:
    ran: Devices = []
    layer = nn.Linear(3, 3).cuda(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        ran.append(x.device)
        return F.dropout(layer(x)) + torch.ones(3, device=x.device)

    output = torch.utils.checkpoint.checkpoint(forward, leaf(CUDA_1, 2, 3) * 1, use_reentrant=use_reentrant)
    output.to(CUDA_0).sum().backward()
    assert [*ran, output.device, layer.weight.grad.device] == [CUDA_1] * 4


# ---- scripts of torch.jit


def test_scripts_and_traces() -> None:
    there = torch.ones(2, 3, device=CUDA_1)
    scripted = torch.jit.script(nn.Linear(3, 3)).cuda(1)
    traced = torch.jit.trace(nn.Linear(3, 3).cuda(1), there)
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(3, 3).cuda(1).eval()))
    function = torch.jit.script(two_results)
    made = [module(there) for module in (scripted, scripted.forward, traced, frozen)]
    assert set(devices(made, function(there), scripted.weight)) == {CUDA_1}


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, x.sum()


def test_a_script_draws_from_the_devices_stream() -> None:
    host = torch.get_rng_state()
    torch.jit.script(nn.Dropout())(torch.ones(8, device=CUDA_1))
    assert torch.equal(torch.get_rng_state(), host)


def test_data_parallel_of_a_script() -> None:
    for net in (
        torch.jit.script(nn.Linear(3, 3)).cuda(),
        nn.Sequential(torch.jit.script(nn.Linear(3, 3)).cuda()),
    ):
        wrapped = nn.DataParallel(net)
        output = wrapped(torch.ones(4, 3))
        output.sum().backward()
        assert set(devices(output, [each.grad for each in wrapped.parameters()])) == {CUDA_0}


def test_scripts_in_files() -> None:
    there = torch.ones(2, 3, device=CUDA_1)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.BatchNorm1d(3).cuda(1)), file)
    for wanted in (CUDA_1, CPU):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=wanted)
        assert set(devices(list(loaded.parameters()), list(loaded.buffers()))) == {wanted}
    assert loaded.to("cuda:1")(there).device == CUDA_1


@pytest.mark.skipif(
    not hasattr(torch, "accelerator"), reason="torch 2.4 makes fake tensors of CUDA, and aborts"
)
def test_export_and_trace_of_a_model_on_a_device() -> None:
    """A fake tensor of CUDA would ask for the driver, and end the process."""
    there = torch.ones(2, 3, device=CUDA_1)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).cuda(1)
    exported = torch.export.export(model, (there,)).module()
    assert set(devices(exported(there), torch.fx.symbolic_trace(model)(there))) == {CUDA_1}


# ---- kinds of tensors


def test_a_subclass_made_of_a_tensor() -> None:

    class Named(torch.Tensor):
        pass

    named = torch.ones(3, device=CUDA_1).as_subclass(Named)
    assert devices(named, named * 2) == [CUDA_1, CUDA_1]


def test_lists_of_tensors_that_are_apart() -> None:
    apart = [torch.ones(3, device=CUDA_0), torch.ones(3, device=CUDA_1), torch.ones(3)]
    wanted = [CUDA_0, CUDA_1, CPU]
    assert devices(torch._foreach_add(apart, 1)) == devices(torch._foreach_norm(apart)) == wanted
    assert devices(torch.atleast_2d(*apart)) == devices(torch.broadcast_tensors(*apart)) == wanted
    assert torch.atleast_1d(apart[1]).device == CUDA_1


def test_sparse_tensors_are_where_their_parts_are() -> None:
    index, values = torch.tensor([[0, 1]], device=CUDA_1), torch.ones(2, device=CUDA_1)
    sparse = torch.sparse_coo_tensor(index, values, (3,))
    assert devices(sparse, sparse.to_dense(), sparse._values()) == [CUDA_1] * 3
    assert torch.sparse_coo_tensor(index, values, (3,), device=CUDA_0).device == CUDA_0


def test_pinned_from_the_beginning() -> None:
    for tensor in (torch.empty(2, pin_memory=True), torch.tensor([1.0], pin_memory=True)):
        assert tensor.is_pinned()
        assert tensor.device == CPU
    assert not torch.empty(2).is_pinned()


def test_a_tensor_taken_over() -> None:
    assert torch.from_dlpack(torch.ones(3, device=CUDA_1)).device == CUDA_1
