# ruff: noqa: E501  (a replacement is the line of a script that it replaces)
"""Planted faults: what a port by hand gets wrong, as a text replacement in a right port.

`step` is the first optimizer step that the fault touches (counted over all optimizers); None: training is the same, and
what the outside sees is not. `cause` is the code that diagnosis has to put first; where two are as right, both.
Where they are from, if not from a port that somebody wrote: headings of docs/semantics.md, and issues, named in `source`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutations.suite import Change


@dataclass(frozen=True)
class Fault:
    """A wrong port."""

    name: str
    base: str
    old: str
    new: str
    causes: str  # codes, divided by "|"
    step: int | None
    source: str = ""
    more: tuple[tuple[str, str], ...] = ()  # replacements beside it
    missed: str = ""  # what diagnosis puts first instead

    @property
    def change(self) -> Change:
        return Change(self.name, self.base, ((self.old, self.new), *self.more))


_MLP_WEIGHT = "(loss * len(y) * world / rows).backward()"
_BATCHES = "batches = BatchSampler(RandomSampler(data), 6, drop_last=False)"
_STEP = "    optimizer.step()\n"
_STEP_IN_EPOCH = "        optimizer.step()\n"

MLP = (
    Fault("mean of means", "mlp", _MLP_WEIGHT, "loss.backward()", "mean-of-means", 3, "examples#739"),
    Fault("weighted, W forgotten", "mlp", _MLP_WEIGHT, "(loss * len(y) / rows).backward()", "mean-for-sum", 0),
    Fault("loss times W", "mlp", _MLP_WEIGHT, "(loss * world).backward()", "sum-for-mean", 0),
    Fault("batch size for each rank", "mlp", _BATCHES, _BATCHES.replace("6,", "6 * world,"), "batch-size", 0, "EfficientConformer#10"),
    Fault("every rank has the whole batch", "mlp", "yield batch[rank * size : (rank + 1) * size]", "yield batch", "repeated-rows|local-numbers", None),
    Fault("both ranks have chunk 0", "mlp", "yield batch[rank * size : (rank + 1) * size]", "yield batch[:size]", "repeated-rows", 0),
    Fault("rank 1 leaves a row out", "mlp", "yield batch[rank * size : (rank + 1) * size]", "yield batch[rank * size : (rank + 1) * size - rank] or batch[-1:]", "missing-rows", 0),
    Fault("no shuffle", "mlp", "RandomSampler(data)", "range(len(data))", "other-order", 0),
    Fault("a seed for each rank", "mlp", "RandomSampler(data)", "RandomSampler(data, generator=torch.Generator().manual_seed(rank))", "repeated-rows|other-order", 0, "docs/semantics.md#unseeded"),
    Fault("drop_last", "mlp", "drop_last=False", "drop_last=True", "drop-last", 3, "GPU2Ascend"),
    Fault("lr times W", "mlp", "lr=0.1", "lr=0.1 * world", "learning-rate-times-world", 0, "CenterNet#339"),
    Fault("no weight decay", "mlp", ", weight_decay=1e-3", "", "optimizer-settings", 0),
    Fault("no momentum", "mlp", "momentum=0.9, ", "", "optimizer-settings", 1),
    Fault("raw module called", "mlp", "criterion(net(x), y)", "criterion(net.module(x), y)", "not-synchronised", 0, "TrainCheck x-jxmnop-ddp-out-of-sync"),
    Fault("wrapper dropped", "mlp", "net = DDP(net.cuda(), device_ids=[rank])", "net.cuda()\nDDP(net, device_ids=[rank])", "not-synchronised", 0, "docs/semantics.md#dropped-wrapper"),
    Fault("zero_grad forgotten", "mlp", "        optimizer.zero_grad()\n", "", "gradients-kept", 1, "TrainCheck stackoverflow-60335387"),
    Fault("optimizer of a copy", "mlp", "torch.optim.SGD(net.parameters()", "torch.optim.SGD(__import__('copy').deepcopy(net).parameters()", "optimizer-of-others|no-gradient", 0),
    Fault("a layer frozen", "mlp", "net = DDP(net.cuda(), device_ids=[rank])", "net[0].requires_grad_(False)\nnet = DDP(net.cuda(), device_ids=[rank])", "no-gradient", 0, "TrainCheck pytorch-forum-84911"),
    Fault("a head left out of the optimizer", "mlp", "SGD(net.parameters()", "SGD(net.module[0].parameters()", "other-parameters", 0),
    Fault("the short chunk is padded", "mlp", "            yield batch[rank * size : (rank + 1) * size]", "            chunk = batch[rank * size : (rank + 1) * size]\n            yield chunk + batch[: size - len(chunk)]", "padded-rows", 3, "accelerate even_batches"),
    Fault("seed after the model", "mlp", "net = nn.Sequential(", "torch.manual_seed(2)\nnet = nn.Sequential(", "initial-state|other-seed", 0),
    Fault("rank prints as well", "mlp", "    if rank == 0:\n        print(f", "    if True:\n        print(f", "every-rank-prints", None, "apex#118"),
    Fault("log written by every rank", "mlp", "        print(f\"epoch {epoch}: loss {total.item() / len(data):.6f}\")\n        with", "        print(f\"epoch {epoch}: loss {total.item() / len(data):.6f}\")\n    if True:\n        with", "doubled-lines", None),
    Fault("a checkpoint for each rank", "mlp", "if rank == 0:\n    torch.save(net.state_dict(), \"net.pt\")", "torch.save(net.state_dict(), f\"net{rank}.pt\")", "doubled-files", None, "apex#118"),
    Fault("checkpoint written by every rank", "mlp", "if rank == 0:\n    torch.save(", "if True:\n    torch.save(", "every-rank-writes", None, "docs/semantics.md#saving"),
    Fault("checkpoint without the prefix", "mlp", "torch.save(net.state_dict()", "torch.save(net.module.state_dict()", "other-keys", None, "pytorch#3805"),
    Fault("this rank's loss printed", "mlp", "    dist.all_reduce(total)\n", "", "local-numbers", None, "docs/semantics.md#local-numbers"),
    Fault("loss summed, not averaged", "mlp", "    dist.all_reduce(total)\n", "    dist.all_reduce(total)\n    total *= world\n", "local-numbers", None),
)  # fmt: skip

CONV_BN = (
    Fault("SyncBatchNorm", "conv_bn", "model = Net().cuda()", "model = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).cuda()", "sync-batchnorm", 0, "discuss 47152"),
    Fault("strided rows", "conv_bn", "        x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n", "        x, y = x[rank::world], y[rank::world]\n", "batchnorm-rows", 0, "docs/semantics.md#strided-rows"),
    Fault("chunks in turn", "conv_bn", "        x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n", "        x, y = x.chunk(world)[world - 1 - rank], y.chunk(world)[world - 1 - rank]\n", "buffers-of-another-rank", 0),
    Fault("eval forgotten to end", "conv_bn", "    net.train()\n", "    if epoch == 0:\n        net.train()\n", "evaluation-mode", 3),
    Fault("no eval", "conv_bn", "    net.eval()\n", "", "evaluation-mode", 3),
    Fault("no eval after the last step", "conv_bn", "    net.eval()\n", "    net.train(epoch == 2)\n", "evaluation-mode", 8),
    Fault("rank 1 prints instead", "conv_bn", "    if rank == 0:\n        print", "    if rank == 1:\n        print", "another-rank-prints", None),
    Fault("buffers of each rank in evaluation", "conv_bn", "    for buffer in net.module.buffers():\n        dist.broadcast(buffer, 0)\n", "", "buffers-of-another-rank|local-numbers", None, "docs/semantics.md#buffers"),
    Fault("checkpoint of rank 1", "conv_bn", "if rank == 0:\n    torch.save", "if rank == 1:\n    torch.save", "buffers-of-another-rank|local-numbers", None, more=(("    for buffer in net.module.buffers():\n", "    for buffer in net.module.buffers() if epoch < 2 else ():\n"),)),
    Fault("buffers averaged", "conv_bn", "        dist.broadcast(buffer, 0)\n", "        if buffer.is_floating_point():\n            dist.all_reduce(buffer)\n            buffer /= world\n", "buffers-of-another-rank", 3),
    Fault("AdamW for Adam", "conv_bn", "torch.optim.Adam(", "torch.optim.AdamW(", "optimizer-settings", 0),
    Fault("beta of rank count", "conv_bn", "lr=1e-2)", "lr=1e-2, betas=(0.9, 0.99))", "optimizer-settings", 0),
    Fault("statistics of the whole batch", "conv_bn", "        x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n", "", "repeated-rows", 0),
    Fault("evaluation of half", "conv_bn", "    dist.all_reduce(sums)\n", "", "local-numbers", None, "docs/semantics.md#evaluation"),
    Fault("lr divided by W", "conv_bn", "lr=1e-2)", "lr=1e-2 / world)", "learning-rate-times-world", 0),
    Fault("flips on one rank only", "conv_bn", "loss = F.cross_entropy(net(x.cuda())", "x = x.flip(3) if rank else x\n        loss = F.cross_entropy(net(x.cuda())", "other-inputs", 0),
)  # fmt: skip

MANUAL = (
    Fault("gradients summed", "manual", "        parameter.grad /= world\n", "", "sum-for-mean", 0),
    Fault("averaged twice", "manual", "parameter.grad /= world\n", "parameter.grad /= world * world\n", "mean-for-sum", 0),
    Fault("clip before sync", "manual", "    average_gradients()\n    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n", "    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)\n    average_gradients()\n", "clip-before-sync", 0),
    Fault("no clip", "manual", "nn.utils.clip_grad_norm_(net.parameters(), 0.5)", "nn.utils.clip_grad_norm_(net.parameters(), 5e9)", "clipping", 0),
    Fault("clipped at another norm", "manual", "nn.utils.clip_grad_norm_(net.parameters(), 0.5)", "nn.utils.clip_grad_norm_(net.parameters(), 0.5 / world)", "clipping", 0),
    Fault("clip on one rank only", "manual", "nn.utils.clip_grad_norm_(net.parameters(), 0.5)", "nn.utils.clip_grad_norm_(net.parameters(), 0.5 if rank == 0 else 5e9)", "clipping|clip-before-sync", 0, "TrainCheck deepspeed-1801"),
    Fault("no sync at all", "manual", "    average_gradients()\n", "", "not-synchronised", 0),
    Fault("the decoder is forgotten", "manual", "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        if not name.startswith('decoder'):\n            dist.all_reduce(parameter.grad)\n            parameter.grad /= world\n", "partly-synchronised", 0, "kohya-ss#924"),
    Fault("norms are forgotten", "manual", "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        if 'norm' not in name:\n            dist.all_reduce(parameter.grad)\n            parameter.grad /= world\n", "partly-synchronised", 0, "Megatron: layer norms not reduced"),
    Fault("no broadcast at the start", "manual", "    dist.broadcast(parameter.data, 0)\n", "    parameter.data += 0.01 * rank\n", "ranks-start-apart", 0, "docs/semantics.md#weights-apart"),
    Fault("one parameter is not broadcast", "manual", "    dist.broadcast(parameter.data, 0)\n", "    parameter.data.add_(0.1 * rank) if parameter is net.decoder.bias else None\n", "ranks-start-apart", 0),
    Fault("the largest gradient", "manual", "dist.all_reduce(parameter.grad)", "dist.all_reduce(parameter.grad, dist.ReduceOp.MAX)", "other-reduction", 0),
    Fault("rank 0's gradient for all", "manual", "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n", "        dist.broadcast(parameter.grad, 0)\n", "other-reduction", 0),
    Fault("a collective loses its data", "manual", "    average_gradients()\n", "    average_gradients()\n    if step == 4 and rank == 1:\n        net.encoder.weight.grad.zero_()\n", "lost-data|partly-synchronised", 4, "TrainCheck pytorch-84803, 96600, baichuan2-86"),
    Fault("sync on every second step", "manual", "    average_gradients()\n", "    if step % 2 == 0:\n        average_gradients()\n", "not-synchronised", 1),
    Fault("no sync in the last step", "manual", "    average_gradients()\n", "    if step < 7:\n        average_gradients()\n", "not-synchronised", 7),
    Fault("schedule W times", "manual", "    scheduler.step()\n", "    for _ in range(world):\n        scheduler.step()\n", "schedule-times-world", 1, "accelerate#2142"),
    Fault("schedule of a rank's length", "manual", "T_max=12", "T_max=12 // world", "schedule-times-world|learning-rate", 1),
    Fault("schedule forgotten", "manual", "    scheduler.step()\n", "", "schedule-times|learning-rate", 1),
    Fault("a permutation of each rank's own", "manual", "torch.randperm(32)[:6].chunk(world)[rank]", "torch.randperm(32, generator=generator)[:6].chunk(world)[rank]", "other-computation|other-random-numbers", 0, more=(("scheduler = ", "generator = torch.Generator().manual_seed(rank)\nscheduler = "),)),
    Fault("rank 1 skips a step", "manual", "    optimizer.step()\n", "    if not (step == 3 and rank == 1):\n        optimizer.step()\n", "local-decision", 3, "docs/semantics.md#local-decisions"),
    Fault("weights decay on rank 0 only", "manual", "weight_decay=0.1", "weight_decay=0.0 if rank else 0.1", "optimizer-settings|ranks-part", 0),
    Fault("only the encoder is clipped", "manual", "clip_grad_norm_(net.parameters(), 0.5)", "clip_grad_norm_(net.encoder.parameters(), 0.5)", "clipping", 0),
    Fault("a new optimizer on the way", "manual", "    optimizer.step()\n", "    if step == 4:\n        optimizer = torch.optim.AdamW(net.parameters(), lr=optimizer.param_groups[0][\"lr\"], weight_decay=0.1)\n    optimizer.step()\n", "optimizer-made-anew", 4),
    Fault("rank 1's bias drifts", "manual", "    optimizer.step()\n", "    optimizer.step()\n    net.encoder.bias.data += 1e-3 * rank\n", "ranks-part", 1),
)  # fmt: skip

ACCUMULATE = (
    Fault("accumulation not divided", "accumulate", "F.mse_loss(net(x), y) / accumulate", "F.mse_loss(net(x), y)", "accumulation-count", 0),
    Fault("divided by W as well", "accumulate", "F.mse_loss(net(x), y) / accumulate", "F.mse_loss(net(x), y) / accumulate / world", "mean-for-sum", 0),
    Fault("accumulation divided by W", "accumulate", "accumulate = 4\n", "accumulate = 4 // world\n", "batch-size|more-steps", 0, "common advice"),
    Fault("no_sync to the end", "accumulate", "contextlib.nullcontext() if last else net.no_sync()", "net.no_sync()", "not-synchronised", 0),
    Fault("no_sync left behind", "accumulate", "contextlib.nullcontext() if last else net.no_sync()", "contextlib.nullcontext() if last and epoch == 0 else net.no_sync()", "not-synchronised", 3),
    Fault("zero_grad in each micro-batch", "accumulate", "            loss = F.mse_loss", "            optimizer.zero_grad()\n            loss = F.mse_loss", "part-of-accumulation", 0),
    Fault("schedule in each micro-batch", "accumulate", "        if last:\n            optimizer.step()\n            scheduler.step()\n", "        scheduler.step()\n        if last:\n            optimizer.step()\n", "schedule-times", 0),
    Fault("schedule W times in accumulation", "accumulate", "            scheduler.step()\n", "            for _ in range(world):\n                scheduler.step()\n", "schedule-times-world", 1, "accelerate#1382"),
    Fault("a step in each micro-batch", "accumulate", "last = (i + 1) % accumulate == 0", "last = True", "more-steps|batch-size", 0),
    Fault("last step of an epoch missing", "accumulate", "last = (i + 1) % accumulate == 0", "last = (i + 1) % accumulate == 0 and i + 1 < len(loader)", "batch-size", 2),
)  # fmt: skip

AMP = (
    Fault("clip before unscale", "amp", "    scaler.unscale_(optimizer)\n    nn.utils.clip_grad_norm_(net.parameters(), 0.3)\n", "    nn.utils.clip_grad_norm_(net.parameters(), 0.3)\n    scaler.unscale_(optimizer)\n", "clip-scaled", 0),
    Fault("W times too large, hidden by clipping", "amp", "scaler.scale(loss * weight)", "scaler.scale(loss * weight * world)", "sum-for-mean", 0),
    Fault("bf16 for fp16", "amp", "dtype=torch.float16", "dtype=torch.bfloat16", "other-precision", 0),
    Fault("no autocast", "amp", "torch.autocast(\"cuda\", dtype=torch.float16)", "torch.autocast(\"cuda\", dtype=torch.float16, enabled=False)", "other-precision", 0),
    Fault("no scaler", "amp", "scaler = torch.amp.GradScaler(\"cuda\", init_scale=1024.0, growth_interval=3)", "scaler = torch.amp.GradScaler(\"cuda\", init_scale=1024.0, growth_interval=3, enabled=False)", "no-scaler", 0),
    Fault("one more step skipped", "amp", "if step == 3 else 1.0", "if step in (2, 3) else 1.0", "skipped-steps|fewer-steps", 2),
    Fault("growth by rank", "amp", "growth_interval=3", "growth_interval=3 * world", "local-numbers|other-output", None),
    Fault("scaler never looks", "amp", "    scaler.step(optimizer)\n", "    optimizer.step()\n", "skipped-steps", 3),
)  # fmt: skip

MASKED = (
    Fault("mean over the rank's words", "masked", "        dist.all_reduce(count)\n        loss = total / count\n        optimizer.zero_grad()\n        (loss * world).backward()\n", "        loss = total / count\n        optimizer.zero_grad()\n        loss.backward()\n", "local-counts|mean-of-means", 0, "docs/semantics.md#counts"),
    Fault("words counted, W forgotten", "masked", "(loss * world).backward()", "loss.backward()", "mean-for-sum", 0),
    Fault("padding counted", "masked", "count = (y != -100).sum()", "count = torch.tensor(y.numel(), device=rank)", "gradient-scale|local-counts", 0),
    Fault("counts of rank 0", "masked", "dist.all_reduce(count)", "dist.broadcast(count, 0)", "gradient-scale|local-counts", 0),
    Fault("printed loss of the rank", "masked", "        dist.all_reduce(whole)\n", "", "local-numbers", None),
    Fault("printed loss averaged", "masked", "dist.all_reduce(whole)", "dist.all_reduce(whole, dist.ReduceOp.AVG)", "local-numbers", None),
)  # fmt: skip

SAMPLER = (
    Fault("set_epoch forgotten", "sampler", "    sampler.set_epoch(epoch)\n", "", "same-order-each-epoch", 4, "pytorch#31771, TrainCheck"),
    Fault("another seed of the sampler", "sampler", "seed=0", "seed=1", "other-order", 0),
    Fault("sampler without shuffle", "sampler", "seed=0", "shuffle=False", "other-order", 0),
    Fault("batch size not divided", "sampler", "batch_size=6 // world", "batch_size=6", "batch-size", 0, "tczhangzhi#3"),
    Fault("sampler of one replica", "sampler", "DistributedSampler(data, seed=0)", "DistributedSampler(data, num_replicas=1, rank=0, seed=0)", "repeated-rows|more-steps", 0),
    Fault("a rank's part is split again", "sampler", "    for x, y in loader:\n", "    for x, y in loader:\n        x, y = x.chunk(world)[rank], y.chunk(world)[rank]\n", "split-twice", 0, more=(("batch_size=6 // world", "batch_size=6"),)),
    Fault("all ranks are rank 0", "sampler", "DistributedSampler(data, seed=0)", "DistributedSampler(data, rank=0, num_replicas=world, seed=0)", "repeated-rows", 0),
    Fault("seed of each rank", "sampler", "seed=0", "seed=rank", "repeated-rows|other-order", 0),
    Fault("a part of the data for each rank", "sampler", "sampler = DistributedSampler(data, seed=0)", "half = torch.utils.data.Subset(data, range(rank * 24 // world, (rank + 1) * 24 // world))\nsampler = DistributedSampler(data, seed=0)\nsampler.dataset, sampler.num_samples, sampler.total_size = half, 24 // world, 24", "missing-samples", 0),
    Fault("half of the data", "sampler", "DistributedSampler(data, seed=0)", "DistributedSampler(range(len(data) // 2), seed=0)", "missing-samples", 0),
    Fault("padding duplicates", "sampler", "sampler = DistributedSampler(data, seed=0)", "data = torch.utils.data.Subset(data, range(23))\nsampler = DistributedSampler(data, seed=0)", "other-order", 0),
    Fault("Nesterov forgotten", "sampler", ", nesterov=True", "", "optimizer-settings", 0),
    Fault("a batch for another number of ranks", "sampler", "batch_size=6 // world", "batch_size=6 // 3", "batch-division", 0),
    Fault("schedule each step", "sampler", "        optimizer.step()\n    scheduler.step()", "        optimizer.step()\n        scheduler.step()", "schedule-times", 1),
    Fault("schedule W times an epoch", "sampler", "    scheduler.step()\n", "    for _ in range(world):\n        scheduler.step()\n", "schedule-times-world", 4, "accelerate#2773"),
    Fault("epochs divided by W", "sampler", "range(3)", "range(3 // world)", "fewer-steps", 4),
    Fault("wrapped anew each epoch, optimizer kept", "sampler", "    sampler.set_epoch(epoch)\n", "    sampler.set_epoch(epoch)\n    net = DDP(__import__('copy').deepcopy(net.module), device_ids=[rank])\n", "optimizer-of-others", 0),
)  # fmt: skip

GAN = (
    Fault("critic not wrapped", "gan", "critic = DDP(nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)).cuda(), device_ids=[rank])", "critic = nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Linear(12, 1)).cuda()", "not-synchronised", 0),
    Fault("generator called without its wrapper", "gan", "fake = generator(noise)", "fake = generator.module(noise)", "not-synchronised", 1),
    Fault("noise of each rank", "gan", "    noise = torch.randn(6, 3).chunk(world)[rank].cuda()\n", "    noise = torch.randn(6 // world, 3).cuda()\n", "other-inputs|repeated-rows", 0, "docs/semantics.md#script-draws"),
    Fault("noise of each device", "gan", "torch.randn(6, 3).chunk(world)[rank].cuda()", "torch.randn(6 // world, 3, device=rank)", "other-inputs|repeated-rows", 0),
    Fault("generator's gradients kept", "gan", "    g_optimizer.zero_grad()\n", "", "gradients-kept", 3),
    Fault("optimizers in turn", "gan", "    d_loss.backward()\n    d_optimizer.step()\n    g_optimizer.zero_grad()\n    g_loss = F.softplus(-critic(fake)).mean()\n    g_loss.backward()\n    g_optimizer.step()\n", "    d_loss.backward()\n    g_loss = F.softplus(-critic(fake)).mean()\n    g_optimizer.zero_grad()\n    g_loss.backward()\n    g_optimizer.step()\n    d_optimizer.step()\n", "other-optimizer-order", 0),
    Fault("critic's lr for both", "gan", "lr=2e-3", "lr=2e-3 * world", "learning-rate-times-world", 1),
    Fault("betas forgotten", "gan", "d_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.999))", "d_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-3)", "optimizer-settings", 0),
)  # fmt: skip

DROPOUT = (
    Fault("seed plus rank", "dropout", "inputs, targets = torch.randn(32, 6), torch.randn(32, 2)\n", "inputs, targets = torch.randn(32, 6), torch.randn(32, 2)\ntorch.manual_seed(9 + rank)\n", "initial-state|other-seed", 0),
    Fault("streams of the ranks", "dropout", "for step in range(6):\n", "torch.cuda.manual_seed(9 + rank)\nfor step in range(6):\n", "other-random-numbers", 0, "accelerate#114"),
    Fault("every other row", "dropout", ".chunk(world)[rank]", "[rank::world]", "chunks-otherwise", 0),
    Fault("another share of dropout", "dropout", "nn.Dropout(0.4)", "nn.Dropout(0.5)", "other-random-numbers|other-computation", 0),
    Fault("dropout off after a while", "dropout", "    net.train()\n", "    net.train(step < 3)\n", "evaluation-mode", 3),
    Fault("a draw on the device", "dropout", "    net.train()\n", "    net.train()\n    torch.rand(1, device=rank) if step == 2 else None\n", "other-random-numbers", 2, "docs/semantics.md#device-streams"),
)  # fmt: skip

EARLY = (
    Fault("plateau of the rank's score", "early", "    scheduler.step(score)\n", "    scheduler.step(score if rank == 0 else -score)\n", "local-decision", 4, "docs/semantics.md#local-decisions"),
    Fault("mean of the ranks' scores", "early", "        dist.all_reduce(total)\n        score = total.item() / len(test_x)\n", "        total /= len(a)\n        dist.all_reduce(total)\n        score = total.item() / world\n", "local-numbers", None, "examples#461"),
    Fault("score of rank 0's rows", "early", "dist.all_reduce(total)", "dist.broadcast(total, 0)", "learning-rate|fewer-steps|more-steps", 4),
    Fault("patience counted twice", "early", "        since += 1\n", "        since += 2\n", "fewer-steps", 6),
    Fault("never stops", "early", "            break\n", "            pass\n", "more-steps", 8),
    Fault("last checkpoint for the best", "early", "        if rank == 0:\n            torch.save({\"epoch\": epoch, \"net\": net.module.state_dict()}, \"best.pt\")\n", "    if rank == 0:\n        torch.save({\"epoch\": epoch, \"net\": net.module.state_dict()}, \"best.pt\")\n    if score == best:\n        pass\n", "weights-of-another-step|other-output", None),
    Fault("evaluation leaves half out", "early", "total.item() / len(test_x)", "total.item() / len(a)", "local-numbers", None, "examples#461"),
)  # fmt: skip

AUGMENT = (
    Fault("ranks draw the same", "augment", "torch.manual_seed(100 + rank)", "torch.manual_seed(100)", "repeated-draws", 0, "transformers#37932"),
    Fault("workers draw the same in one library", "augment", "num_workers=2", "num_workers=2, worker_init_fn=lambda worker: random.seed(0)", "repeated-draws", 0, "stackoverflow-67180955"),
    Fault("no flips", "augment", "random.random() < 0.5", "random.random() < 0.0", "other-inputs", 0),
    Fault("flips of the other axis", "augment", "image.flip(2)", "image.flip(1)", "other-inputs", 0),
    Fault("sampler shuffles", "augment", "shuffle=False", "shuffle=True", "other-order", 0),
)  # fmt: skip

UNUSED = (
    Fault("None for zeros", "unused", "            parameter.grad = torch.zeros_like(parameter)\n", "            pass\n", "zeros-for-none", 0, "pytorch#7365, #23938"),
    Fault("stem not frozen", "unused", "net.stem.bias.requires_grad_(False)\n", "", "other-parameters", 0),
    Fault("more is frozen", "unused", "net.stem.bias.requires_grad_(False)\n", "net.stem.requires_grad_(False)\n", "other-parameters", 0),
    Fault("second head always", "unused", "step % 3 == 2)", "True)", "other-computation|other-random-numbers", 0),
    Fault("gradients of the step before", "unused", "    optimizer.zero_grad()\n", "    optimizer.zero_grad() if step != 4 else None\n", "gradients-kept", 4),
)  # fmt: skip

CONTRASTIVE = (
    Fault("own part back, W forgotten", "contrastive", "(loss * world).backward()", "loss.backward()", "mean-for-sum", 0, "open_clip#616"),
    Fault("negatives of the own rank", "contrastive", "    a, b = gather(a), gather(b)\n    loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(6).cuda())\n    optimizer.zero_grad()\n    (loss * world).backward()\n", "    loss = F.cross_entropy(a @ b.T / 0.1, torch.arange(6 // world).cuda())\n    optimizer.zero_grad()\n    loss.backward()\n", "pairs-across-ranks", 0, "docs/semantics.md#coupled-rows"),
    Fault("gathered without gradients", "contrastive", "    a, b = gather(a), gather(b)\n", "    a, b = gather(a), gather(b).detach()\n", "other-computation", 0, "solo-learn#258"),
    Fault("labels without the rank's offset", "contrastive", "a @ b.T / 0.1, torch.arange(6).cuda()", "a.roll(1, 0) @ b.T / 0.1, torch.arange(6).cuda()", "other-computation", 0),
)  # fmt: skip

TOTAL = (
    Fault("a sum averaged", "total", "(loss * world).backward()", "loss.backward()", "mean-for-sum", 0, "docs/semantics.md#sum-losses"),
    Fault("unfrozen without a new wrap", "total", "        net = DDP(net.module, device_ids=[rank])\n", "", "partly-synchronised", 3, "docs/semantics.md#after-the-wrap"),
    Fault("never unfrozen", "total", "net.module[0].requires_grad_(True)", "net.module[0].requires_grad_(False)", "no-gradient", 3),
    Fault("weights loaded on one rank", "total", "    if step == 3:\n", "    if step == 2 and rank:\n        net.module[2].weight.data *= 1.1\n    if step == 3:\n", "ranks-part", 2, "docs/semantics.md#weights-apart"),
    Fault("moved to the CPU and back", "total", "for step in range(6):\n", "for p in net.module.parameters():\n    p.requires_grad_(False)\nnet.module[2].load_state_dict({k: v.clone() for k, v in net.module[2].state_dict().items()}, assign=True)\nnet.module[2].requires_grad_(True)\noptimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)\nfor step in range(6):\n", "not-synchronised|partly-synchronised", 0, "TrainCheck pytorch-104336"),
    Fault("gradients by autograd.grad", "total", "    (loss * world).backward()\n", "    wanted = [p for p in net.parameters() if p.requires_grad]\n    for p, g in zip(wanted, torch.autograd.grad(loss * world, wanted)):\n        p.grad = g\n", "not-synchronised|partly-synchronised", 0, "docs/semantics.md#autograd-grad"),
    Fault("backward twice", "total", "    (loss * world).backward()\n", "    (loss * world / 2).backward(retain_graph=True)\n    (loss * world / 2).backward()\n", "not-synchronised|partly-synchronised", 0, "docs/semantics.md#backward-twice"),
    Fault("files torn", "total", "    if rank == 0:\n        torch.save(net.module.state_dict(), f\"step{step % 2}.pt\")", "    torch.save(net.module.state_dict(), f\"step{step % 2 + rank}.pt\")", "every-rank-writes|doubled-files", None, "docs/semantics.md#saving"),
    Fault("file of an earlier step", "total", "f\"step{step % 2}.pt\"", "f\"step{step % 2}.pt\" if step < 5 else 'last.pt'", "other-output|doubled-files", None),
)  # fmt: skip

TEACHER = (
    Fault("weights of the sampler lost", "teacher", "WeightedRandomSampler(torch.linspace(0.1, 2.0, 32) ** 3, 30)", "torch.utils.data.RandomSampler(data)", "sampler-weights", 0),
    Fault("padding of the short batch", "teacher", "        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()\n", "        seen = (x, y) if rows == 8 else (torch.cat([x, seen[0]])[:8], torch.cat([y, seen[1]])[:8])\n        (x, y), rows = seen, 8\n        x, y = x.chunk(world)[rank].cuda(), y.chunk(world)[rank].cuda()\n", "padded-rows", 3, "DistributedSampler, accelerate even_batches"),
    Fault("centre of the rank's rows", "teacher", "            mean = out.sum(0) / rows\n            dist.all_reduce(mean)\n", "            mean = out.mean(0)\n", "buffer-of-local-rows", 1, "DINO"),
    Fault("average before the step", "teacher", "        optimizer.step()\n", "        for old, new in zip(average.parameters(), net.module.parameters()):\n            old.data.mul_(0.9).add_(new.data, alpha=0.1)\n        optimizer.step()\n", "moved-by-hand|weights-of-another-step", 8, more=(("            for old, new in zip(average.parameters(), net.module.parameters()):\n                old.mul_(0.9).add_(new, alpha=0.1)\n", ""),)),
    Fault("lr of the rank in a group", "teacher", "\"lr\": 2e-3", "\"lr\": 2e-3 * (1 + rank)", "learning-rates-apart", 0),
)  # fmt: skip

BY_HAND = (
    Fault("average of other weights", "by_hand", "kept.mul_(0.9).add_(weight, alpha=0.1)", "kept.mul_(0.9).add_(weight, alpha=0.1 / world)", "moved-by-hand", 0),
    Fault("moved W times as far", "by_hand", "weight.data.sub_(0.1 * weight.grad)", "weight.data.sub_(0.1 * world * weight.grad)", "moved-by-hand", 0),
    Fault("gradients in half", "manual", "        dist.all_reduce(parameter.grad)\n", "        parameter.grad = parameter.grad.half().float()\n        dist.all_reduce(parameter.grad)\n", "half-by-hand", 0),
    Fault("gradients in half from step 4 on", "manual", "        dist.all_reduce(parameter.grad)\n", "        if step >= 4:\n            parameter.grad = parameter.grad.to(torch.bfloat16).float()\n        dist.all_reduce(parameter.grad)\n", "half-by-hand", 4),
    Fault("a model in half at the end", "manual", "dist.destroy_process_group()", "net.half()\ndist.destroy_process_group()", "half-by-hand", 8),
    Fault("moved before the ranks share", "by_hand", "((net(x[rows]", "((net.module(x[rows]", "not-synchronised", 0),
    Fault("weights scaled behind the last step", "mlp", "if rank == 0:\n    torch.save(", "net.module[0].weight.data.mul_(1.01)\nif rank == 0:\n    torch.save(", "changed-after-training", 8),
)  # fmt: skip

FAULTS: tuple[Fault, ...] = (
    *MLP, *CONV_BN, *MANUAL, *ACCUMULATE, *AMP, *MASKED, *SAMPLER, *GAN, *DROPOUT, *EARLY, *AUGMENT, *UNUSED,
    *CONTRASTIVE, *TOTAL, *TEACHER, *BY_HAND,
)  # fmt: skip
