"""More that is right: epochs counted elsewhere, loaders in dicts, losses weighted, tests with a wrapper in eval on all ranks."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.a = nn.Linear(4, 1)
        self.b = nn.Linear(4, 1)

    def forward(self, x, task):
        heads = {"a": self.a, "b": self.b}
        return heads[task](self.body(x))


class Prompt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.out, self.table(x), use_reentrant=False)


def unwrap(model):
    return model.module if isinstance(model, DDP) else model


def freeze(model):
    for p in unwrap(model).body.parameters():
        p.requires_grad_(False)


class Data:
    def __init__(self, sets):
        self.samplers = {k: DistributedSampler(v) for k, v in sets.items()}
        self.loaders = {k: DataLoader(v, 8, sampler=self.samplers[k]) for k, v in sets.items()}

    def __getitem__(self, key):
        return self.loaders[key]

    def epoch(self, number):
        for sampler in self.samplers.values():
            sampler.set_epoch(number)


def main(sets):
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    data = Data(sets)
    model = DDP(TwoHeads().to(device), device_ids=[device], find_unused_parameters=True)
    prompt = DDP(Prompt().to(device), device_ids=[device])
    freeze(model)
    optimizer = torch.optim.Adagrad(model.parameters())
    calibration = DataLoader(Subset(sets["train"], range(100)), batch_size=10, shuffle=True)
    for epoch in range(10):
        data.epoch(epoch)
        for key in ("a", "b"):
            for x, y in data[key]:
                loss = (model(x.to(device), key) - y.to(device)).pow(2).mean() + prompt(x.long()).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        total = torch.zeros(2, device=device)
        with torch.no_grad():
            for x, y in calibration:
                total[0] += (model(x.to(device), "a") - y.to(device)).pow(2).sum()
                total[1] += len(y)
        model.train()
        if dist.get_rank() == 0:
            print(f"calibrated {total[0] / total[1]:.3f}")
            inner = unwrap(model)
            with torch.no_grad():
                print(inner(torch.zeros(1, 4, device=device), "a").item())
    state = model.module.state_dict() if dist.get_rank() == 0 else None
    box = [state]
    dist.broadcast_object_list(box, src=0)
    model.module.load_state_dict(box[0])
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    handles = [dist.broadcast(p.data, 0, async_op=True) for p in model.parameters()]
    for handle in handles:
        handle.wait()
    if dist.get_rank() == 0:
        parts = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
        dist.gather(total, parts)
        print(torch.stack(parts).sum())
    else:
        dist.gather(total)
    objects = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object({"rank": dist.get_rank()}, objects)
    dist.destroy_process_group()


def fine_tune(net, path, batches):
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    with torch.cuda.device(local_rank):
        net.load_state_dict(torch.load(path, map_location=torch.device("cpu")), strict=False)
        model = DDP(net.cuda(), device_ids=[local_rank])
        model = torch.compile(model)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        for i, x in enumerate(batches(BatchSampler, dist.get_rank())):
            loss = model(x.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            scheduler.step(mean)
        model.eval()
    dist.destroy_process_group()


if __name__ == "__main__":
    from project import sets

    main(sets())
