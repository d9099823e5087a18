# ruff: noqa: E501  (a replacement is the line of a script that it replaces)
"""Harmless variants: right ports that look different. None may be called different."""

from __future__ import annotations

from tests.mutations.suite import Change

_WRAP = "device_ids=[rank])"
_CHUNK_CONV = "        x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n"
_GATHER = """    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine.detach())
    parts[rank] = mine
    return torch.cat(parts)
"""
_AVERAGE = """    for name, parameter in net.named_parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
"""
_BUCKET = """    flat = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    dist.all_reduce(flat)
    flat /= world
    for parameter in net.parameters():
        parameter.grad.copy_(flat[: parameter.numel()].view_as(parameter))
        flat = flat[parameter.numel() :]
"""
_HOOK = """def hook(state, bucket):
    buffer = bucket.buffer().div_(world)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0])


net.register_comm_hook(None, hook)
"""


def _one(name: str, base: str, *texts: str) -> Change:
    """Pairs of old and new text."""
    return Change(name, base, tuple(zip(texts[::2], texts[1::2], strict=True)))


_OPTIONS = {
    "gradients are views of buckets": "gradient_as_bucket_view=True",
    "a static graph": "static_graph=True",
    "unused parameters are looked for": "find_unused_parameters=True",
    "small buckets": "bucket_cap_mb=0.0001",
}
WRAPPED = ("mlp", "conv_bn", "accumulate", "masked", "sampler", "dropout", "contrastive")

HARMLESS: tuple[Change, ...] = (
    *(
        _one(f"{base}: {name}", base, _WRAP, f"device_ids=[rank], {option})")
        for name, option in _OPTIONS.items()
        for base in WRAPPED
        if (base, name) != ("accumulate", "a static graph")  # no_sync and a static graph: torch refuses
    ),
    *(_one(f"{base}: no device_ids", base, f", {_WRAP}", ")") for base in ("mlp", "conv_bn")),
    *(
        _one(f"{base}: two threads", base, 'dist.init_process_group("nccl")', 'torch.set_num_threads(2)\ndist.init_process_group("nccl")')
        for base in ("conv_bn", "manual", "gan")
    ),
    *(
        _one(f"{base}: backend by default", base, 'dist.init_process_group("nccl")', "dist.init_process_group()")
        for base in ("early", "total")
    ),
    *(
        _one(f"{base}: barriers", base, "        optimizer.step()\n", "        optimizer.step()\n        dist.barrier()\n")
        for base in ("mlp", "conv_bn")
    ),
    _one("mlp: renamed", "mlp", "class Chunks:", "class MyBatches:", "Chunks(batches)", "MyBatches(batches)"),
    _one("mlp: worker processes", "mlp", "batch_sampler=Chunks(batches)", "batch_sampler=Chunks(batches), num_workers=2"),
    _one("mlp: parameters in another order", "mlp", "torch.optim.SGD(net.parameters()", "torch.optim.SGD(list(net.parameters())[::-1]"),
    _one("mlp: weight worked out otherwise", "mlp", "(loss * len(y) * world / rows).backward()", "(loss * (len(y) / (rows / world))).backward()"),
    _one("mlp: a sum over the global batch", "mlp", "loss = criterion(net(x), y)\n", "loss = nn.functional.cross_entropy(net(x), y, reduction='sum') / len(y)\n"),
    _one("mlp: zero_grad behind the step", "mlp", "        optimizer.zero_grad()\n", "", "        optimizer.step()\n", "        optimizer.step()\n        optimizer.zero_grad()\n"),
    _one("mlp: gradients are zeroed, not dropped", "mlp", "optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)"),
    _one("mlp: strided rows", "mlp", "yield batch[rank * size : (rank + 1) * size]", "yield batch[rank::world]"),
    _one("mlp: chunks in turn", "mlp", "yield batch[rank * size : (rank + 1) * size]", "yield batch[(world - 1 - rank) * size : (world - rank) * size]"),
    _one("mlp: foreach", "mlp", "weight_decay=1e-3)", "weight_decay=1e-3, foreach=True)"),
    _one("mlp: two groups of one setting", "mlp", "torch.optim.SGD(net.parameters(), lr=0.1", "torch.optim.SGD([{'params': net.module[0].parameters()}, {'params': net.module[2].parameters()}], lr=0.1"),
    _one("mlp: communication hook", "mlp", "optimizer = torch", _HOOK + "optimizer = torch"),
    _one("mlp: rows known without a collective", "mlp", "        rows = torch.tensor(len(y), device=rank)\n        dist.all_reduce(rows)\n", "        rows = min(6, 23 - done)\n        done += rows\n", "    total = torch.zeros((), device=rank)\n", "    total, done = torch.zeros((), device=rank), 0\n"),
    _one("mlp: rank 0 writes with pathlib", "mlp", 'with open("log.txt", "a") as log:', 'with __import__("pathlib").Path("log.txt").open("a") as log:'),
    _one("mlp: sys.stdout", "mlp", 'print(f"epoch {epoch}: loss {total.item() / len(data):.6f}")', 'import sys; sys.stdout.write(f"epoch {epoch}: loss {total.item() / len(data):.6f}\\n")'),
    _one("mlp: draws after the training", "mlp", "if rank == 0:\n    torch.save", "torch.rand(3)\nif rank == 0:\n    torch.save"),
    _one("mlp: torch.compile's eager backend is not asked", "mlp", "criterion = nn.CrossEntropyLoss()", "criterion = torch.nn.functional.cross_entropy"),
    _one("conv_bn: checkpoint of rank 1", "conv_bn", "if rank == 0:\n    torch.save", "if rank == 1:\n    torch.save"),
    _one("conv_bn: slices for chunks", "conv_bn", _CHUNK_CONV, "        x, y = x[rank * 6 // world : (rank + 1) * 6 // world], y[rank * 6 // world : (rank + 1) * 6 // world]\n"),
    _one("conv_bn: evaluation on rank 0's rows in turn", "conv_bn", "x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()", "x, y = x[rank::world].cuda(), y[rank::world].cuda()"),
    _one("conv_bn: buffers are not broadcast in the forward", "conv_bn", _WRAP, "device_ids=[rank], broadcast_buffers=False)"),
    _one("conv_bn: evaluation on every rank", "conv_bn", "            x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()\n", "            x, y = x.cuda(), y.cuda()\n", "    dist.all_reduce(sums)\n", ""),
    _one("conv_bn: channels last", "conv_bn", "model = Net().cuda()", "model = Net().cuda().to(memory_format=torch.channels_last)"),
    _one("conv_bn: capturable settings", "conv_bn", "lr=1e-2)", "lr=1e-2, betas=(0.9, 0.999), eps=1e-8)"),
    _one("manual: one flat bucket", "manual", _AVERAGE, _BUCKET),
    _one("manual: AVG", "manual", "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        dist.all_reduce(parameter.grad / 1)\n        parts = [torch.empty_like(parameter.grad) for _ in range(world)]\n        dist.all_gather(parts, parameter.grad)\n        parameter.grad = sum(parts) / world\n"),
    _one("manual: divided first", "manual", "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        parameter.grad /= world\n        dist.all_reduce(parameter.grad)\n"),
    _one("manual: the loss is divided", "manual", "    loss.backward()\n", "    (loss / world).backward()\n", "        parameter.grad /= world\n", ""),
    _one("manual: with the wrapper", "manual", "    average_gradients()\n", "", "net = Net().cuda()\n", "net = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[rank])\n"),
    _one("manual: in reverse", "manual", "for name, parameter in net.named_parameters():", "for name, parameter in reversed(list(net.named_parameters())):"),
    _one("manual: clipped by hand", "manual", "    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n", "    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()\n    for p in net.parameters():\n        p.grad *= torch.clamp(0.5 / (norm + 1e-6), max=1.0)\n"),
    _one("manual: the rank's norm is measured", "manual", "    average_gradients()\n", "    nn.utils.clip_grad_norm_(net.parameters(), float(\"inf\"))\n    average_gradients()\n"),
    _one("accumulate: forward outside of no_sync", "accumulate", "        with contextlib.nullcontext() if last else net.no_sync():\n            loss = F.mse_loss(net(x), y) / accumulate\n            loss.backward()\n", "        loss = F.mse_loss(net(x), y) / accumulate\n        with contextlib.nullcontext() if last else net.no_sync():\n            loss.backward()\n"),
    _one("accumulate: no no_sync", "accumulate", "contextlib.nullcontext() if last else net.no_sync()", "contextlib.nullcontext()"),
    _one("accumulate: the gradient is divided", "accumulate", "F.mse_loss(net(x), y) / accumulate", "F.mse_loss(net(x), y)", "            optimizer.step()\n", "            for p in net.parameters():\n                p.grad /= accumulate\n            optimizer.step()\n"),
    _one("amp: gradients are unscaled by hand", "amp", "    scaler.unscale_(optimizer)\n", "    scaler.unscale_(optimizer)  # once\n"),
    _one("amp: autocast in one line", "amp", '    with torch.autocast("cuda", dtype=torch.float16):\n        loss', '    with torch.autocast(device_type="cuda"):\n        loss'),
    _one("masked: mask by hand", "masked", 'ignore_index=-100, reduction="sum")', 'ignore_index=-100, reduction="none").sum()'),
    _one("masked: outputs are gathered", "masked", "        (loss * world).backward()\n", "        loss = loss * world\n        loss.backward()\n        loss = loss / world\n"),
    _one("masked: sparse is off by name", "masked", "nn.Embedding(20, 10)", "nn.Embedding(20, 10, sparse=False)"),
    _one("sampler: rows of a rank in reverse", "sampler", "    for x, y in loader:\n", "    for x, y in loader:\n        x, y = x.flip(0), y.flip(0)\n"),
    _one("sampler: workers", "sampler", "sampler=sampler)", "sampler=sampler, num_workers=1)"),
    _one("sampler: drop_last where nothing is dropped", "sampler", "seed=0)", "seed=0, drop_last=True)"),
    _one("gan: built in another order", "gan", "g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))\nd_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))\n", "d_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))\ng_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))\n"),
    _one("gan: one backward for each part", "gan", "    d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()\n    d_loss.backward()\n", "    F.softplus(-critic(real)).mean().backward()\n    F.softplus(critic(fake.detach())).mean().backward()\n"),
    _one("dropout: the seed is set again", "dropout", "net = DDP(", "torch.cuda.manual_seed_all(9)\nnet = DDP("),
    _one("early: every rank evaluates all", "early", "        a, b = test_x.chunk(world)[rank].cuda(), test_y.chunk(world)[rank].cuda()\n        total = F.mse_loss(net.module(a), b, reduction=\"sum\")\n        dist.all_reduce(total)\n        score = total.item() / len(test_x)\n", "        score = F.mse_loss(net.module(test_x.cuda()), test_y.cuda()).item()\n"),
    _one("early: rank 0 decides", "early", "        score = total.item() / len(test_x)\n", "        box = [total.item() / len(test_x)]\n        dist.broadcast_object_list(box, 0)\n        score = box[0]\n"),
    _one("augment: other workers", "augment", "num_workers=2", "num_workers=1"),
    _one("augment: no workers", "augment", "num_workers=2", "num_workers=0"),
    _one("augment: another seed of the draws", "augment", "torch.manual_seed(100 + rank)", "torch.manual_seed(700 + rank)"),
    _one("unused: zeros for all", "unused", "    optimizer.zero_grad()\n", "    optimizer.zero_grad(set_to_none=False)\n"),
    _one("contrastive: torch's gather", "contrastive", _GATHER, "    return torch.cat(torch.distributed.nn.functional.all_gather(mine))\n", "(loss * world).backward()", "loss.backward()", "import torch.distributed as dist\n", "import torch.distributed as dist\nimport torch.distributed.nn\n"),
    _one("contrastive: W behind the backward", "contrastive", "    (loss * world).backward()\n", "    loss.backward()\n    for p in net.parameters():\n        p.grad *= world\n"),
    _one("teacher: the sum is divided behind", "teacher", "            mean = out.sum(0) / rows\n            dist.all_reduce(mean)\n", "            mean = out.sum(0)\n            dist.all_reduce(mean)\n            mean /= rows\n"),
    _one("teacher: the average on rank 0 alone", "teacher", "            for old, new in zip(average.parameters(), net.module.parameters()):\n", "            for old, new in zip(average.parameters(), net.module.parameters()) if rank == 0 else ():\n"),
    _one("total: saved by way of a buffer", "total", 'torch.save(net.module.state_dict(), f"step{step % 2}.pt")', 'torch.save({k: v.clone() for k, v in net.module.state_dict().items()}, f"step{step % 2}.pt")'),
    _one("total: mean times rows", "total", 'reduction="sum")', "reduction=\"mean\") * len(rows)"),
)  # fmt: skip
