"""Right code that looks like wrong code: none of the rules has anything to say about it."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.rule import code_of
from tests.review.finding import found_in

HEAD = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank])
"""
# A loop that adds up each rank's own losses; indented as the cases that go on with it.
OWN_TOTAL = """loader = DataLoader(data, sampler=DistributedSampler(data))
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            total = 0.0
            for x, y in loader:
                loss = model(x).mean()
                loss.backward()
                total += loss.item()"""

RIGHT = {
    "one rank goes first, by a context": """
        from contextlib import contextmanager
        @contextmanager
        def rank_zero_first(local_rank):
            if local_rank not in [-1, 0]:
                dist.barrier()
            yield
            if local_rank == 0:
                dist.barrier()
    """,
    "a source sends, the others receive": """
        if dist.get_rank() == 0:
            dist.broadcast(x, src=0)
        else:
            dist.broadcast(x, src=0)
    """,
    "a collective of a group": """
        if dist.get_rank() == 0:
            dist.all_reduce(x, dist.ReduceOp.SUM, own_group)
    """,
    "a saver that is called by one rank": """
        class Trainer:
            def save(self, path):
                torch.save(self.model.state_dict(), path)
            def train(self):
                for epoch in range(3):
                    self.run(epoch)
                    if self.global_rank == 0:
                        self.save("last.pt")
    """,
    "a saver behind a flag made of the rank": """
        is_saver = dist.get_rank() == 0
        for epoch in range(3):
            if is_saver and epoch % 2:
                torch.save(model.state_dict(), "last.pt")
    """,
    "a saver that returns on other ranks": """
        def save(state):
            if dist.get_rank() != 0:
                return
            torch.save(state, "last.pt")
        for epoch in range(3):
            save(model.state_dict())
    """,
    "a number that is a rank at times, and anything else at others": """
        class Trainer:
            def __init__(self, part):
                self.part = part
            def run(self):
                if self.part == 0:
                    dist.barrier()
        Trainer(local_rank).run()
        Trainer(parts[0]).run()
        count = dist.get_rank()
        count += 1
        if count == 1:
            dist.barrier()
    """,
    "one rank leaves a loop of its own": """
        for epoch in range(3):
            for x in batches:
                model(x).mean().backward()
            if dist.get_rank() == 0:
                for i, x in enumerate(pictures):
                    if i == 10:
                        break
                    draw(x)
        if dist.get_rank() == 0:
            while True:
                other(x).backward()
                if seen():
                    break
    """,
    "one rank skips what comes behind the step": """
        for x in batches:
            model(x).mean().backward()
            if dist.get_rank() != 0:
                continue
            log(x)
    """,
    "devices by number for one rank, in a run without ranks, and by every rank's own": """
        if dist.get_rank() == 0:
            x = x.to("cuda:0")
        if not dist.is_initialized():
            net.to("cuda:0")
        y = y.to(f"cuda:{local_rank}")
    """,
    "flags that are made of themselves": """
        waits = not waits
        if waits:
            dist.barrier()
        class Turn:
            def __init__(self):
                self.index = dist.get_rank()
            def next(self):
                self.index += 1
                if self.index == 1:
                    dist.barrier()
            def first(self):
                return self.first() and waits
            def meet(self):
                if self.first():
                    dist.barrier()
    """,
    "all ranks end, or leave a loop, at once": """
        for epoch in range(3):
            model(x).mean().backward()
            if dist.get_world_size() == 1 and epoch:
                break
    """,
    "files that are dealt out by their numbers": """
        for i, name in enumerate(names):
            if i % dist.get_world_size() != dist.get_rank():
                continue
            with model.join():
                model(read(name)).mean().backward()
    """,
    "a model in parts on two devices": """
        first.to("cuda:0")
        second.to("cuda:1")
    """,
    "a device that a launcher chooses": """
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
        x = x.to("cuda:0")
    """,
    "samplers that go to a loader by other ways": """
        class Data:
            def __init__(self, data):
                self.sampler = DistributedSampler(data)
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_sampler=in_batches(sampler))
        other = DistributedSampler(data)
        loader = DataLoader(data, sampler=Subset(other))
        for x in loader:
            model(x).mean().backward()
    """,
    "the bare model by another name, for what trains nothing, and a copy of it": """
        from copy import deepcopy
        bare = net
        teacher = deepcopy(net)
        wrapper = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank])
        for x in batches:
            loss = (wrapper(x) - teacher(x)).mean()
            loss.backward()
        with torch.no_grad():
            print(bare(x).mean().item(), local_rank)
        torch.save(bare.state_dict(), f"{local_rank}.pt")
    """,
    "another model by the name that the bare one had": """
        bare = net
        wrapper = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank])
        bare = wrapper
        for x in batches:
            bare(x).mean().backward()
    """,
    "a folder for each rank": """
        folder = f"out/{dist.get_rank()}"
        path = os.path.join(folder, "part.pt")
        torch.save(results, path)
    """,
    "a folder for each rank, handed on": """
        def save(path):
            torch.save(model.state_dict(), path)
        for epoch in range(3):
            save(f"{dist.get_rank()}.pt")
    """,
    "print is replaced": """
        import builtins
        def quiet(*args, **kwargs):
            pass
        if dist.get_rank() != 0:
            builtins.print = quiet
        for epoch in range(3):
            print(epoch)
    """,
    "an order of the evaluation that stays": """
        loader = DataLoader(data, sampler=DistributedSampler(data))
        for epoch in range(3):
            with torch.no_grad():
                for x in loader:
                    dist.all_reduce(model(x))
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for epoch in range(3):
            for x in loader:
                model(x).mean().backward()
    """,
    "the critic of a GAN, past its wrapper, for the generator's step": """
        for x in batches:
            critic_loss = model(x).mean()
            critic_loss.backward()
            loss = -model.module(generator(x)).mean()
            loss.backward()
    """,
    "evaluation past the wrapper, on one rank": """
        for epoch in range(3):
            if dist.get_rank() == 0:
                with torch.no_grad():
                    out = model.module(x)
    """,
    "a forward without sync, and its backward": """
        for x in batches:
            with model.no_sync():
                loss = model(x).mean()
            with model.no_sync():
                loss.backward()
    """,
    "one epoch, and a loop in a function of another file": """
        from engine import train_one_epoch
        for step, (x, y) in enumerate(DataLoader(data, sampler=DistributedSampler(data))):
            model(x, y).backward()
        loader = DataLoader(more, batch_size=32, sampler=DistributedSampler(more))
        for epoch in range(10):
            train_one_epoch(model, loader)
    """,
    "lines that say whose they are": """
        for epoch in range(10):
            print("rank", dist.get_rank(), "loss", train(model))
    """,
    "the runs of a group": """
        import wandb
        wandb.init(project="cifar", group="ddp")
    """,
    "a decision by all of the held-out data": """
        from torch.optim.lr_scheduler import ReduceLROnPlateau
        scheduler = ReduceLROnPlateau(optimizer)
        loader = DataLoader(data, sampler=DistributedSampler(data))
        valid_loader = DataLoader(valid)
        for epoch in range(10):
            total = 0.0
            for x, y in valid_loader:
                total += loss(model, x, y).item()
            scheduler.step(total)
    """,
    "weights that one rank loads, and sends": """
        if dist.get_rank() == 0:
            model.module.load_state_dict(torch.load("a.pt", map_location="cpu"))
        for p in model.parameters():
            dist.broadcast(p, 0)
    """,
    "weights that somebody else saved": """
        net.load_state_dict(torch.load("resnet50.pth"))
    """,
    "a loader of rank 0's own, by the name of the sharded one": """
        sampler = DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x in loader:
                model(x).mean().backward()
        if dist.get_rank() == 0:
            loader = DataLoader(held_out)
            with torch.no_grad():
                for x, y in loader:
                    hits += (model.module(x).argmax(1) == y).sum().item()
    """,
    "no sampler any more where rank 0 evaluates": """
        def train(sampler):
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            sampler = None
            if dist.get_rank() == 0:
                held_out = DataLoader(test_set, sampler=sampler)
                with torch.no_grad():
                    for x, y in held_out:
                        hits += (model.module(x).argmax(1) == y).sum().item()
    """,
    "another class's loader, of the same name": """
        class Trainer:
            def __init__(self):
                self.sampler = DistributedSampler(data)
                self.loader = DataLoader(data, sampler=self.sampler)
        class Evaluator:
            def __init__(self):
                self.loader = DataLoader(test_set)
            @torch.no_grad()
            def run(self):
                for x, y in self.loader:
                    hits += (model.module(x).argmax(1) == y).sum().item()
    """,
    "one loop that trains and evaluates": """
        def run(model, loader, trains):
            for x, y in loader:
                if trains:
                    model(x).mean().backward()
                else:
                    with torch.no_grad():
                        hits += (model(x).argmax(1) == y).sum().item()
        sampler = DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler)
        held_out = DataLoader(test_set)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            run(model, loader, True)
            if dist.get_rank() == 0:
                run(model.module, held_out, False)
    """,
    "a rate by held-out data, which a function goes through as it does through a share": """
        def run(batches):
            total = 0.0
            for x in batches:
                total += model(x).mean().item()
            return total
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        seen = run(DataLoader(data, sampler=DistributedSampler(data)))
        scheduler.step(run(DataLoader(held_out)))
    """,
    "a rate by held-out data, in a class that keeps numbers of a share": """
        class Trainer:
            def __init__(self):
                self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
                self.loader = DataLoader(data, sampler=DistributedSampler(data))
            def run(self):
                for x in self.loader:
                    self.keep(model(x).mean())
                self.scheduler.step(held_out_loss())
    """,
    "a meter of another file, which may bring the ranks' numbers together": """
        from meters import Average
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        average = Average()
        for x in DataLoader(data, sampler=DistributedSampler(data)):
            average.update(model(x).mean().item())
        scheduler.step(average.value)
    """,
    "another model by the name of the parameter that gets the bare one": """
        def train(bare):
            bare = other
            for x in batches:
                bare(x).mean().backward()
        wrapper = DistributedDataParallel(net.cuda(local_rank), device_ids=[local_rank])
        train(net)
    """,
    "a save on the way out, where one rank may be alone": """
        try:
            train(model)
        except KeyboardInterrupt:
            torch.save(model.state_dict(), "last.pt")
    """,
    "a file of each rank, by a table of arguments": """
        def save(place):
            torch.save(model.state_dict(), place)
        save(**{"place": f"{local_rank}.pt"})
    """,
    "trackers on one rank, by an object": """
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("runs") if dist.get_rank() == 0 else None
    """,
    "the first process goes first, by the number that it is spawned with": """
        import torch.multiprocessing as mp
        def main_worker(gpu, args):
            if gpu != 0:
                dist.barrier()
            download()
            if gpu == 0:
                dist.barrier()
        mp.spawn(main_worker, nprocs=2, args=(args,))
    """,
    "the parent of the ranks tells what it does": """
        import torch.multiprocessing as mp
        import wandb
        def worker(rank):
            pass
        if __name__ == "__main__":
            for path in ("a", "b"):
                print("starting", path)
            wandb.init()
            mp.spawn(worker, nprocs=2)
    """,
    "a seed of each rank for what is drawn, and one for the shares": """
        torch.manual_seed(args.seed + local_rank)
        train, held_out = torch.utils.data.random_split(data, [9, 1], generator=torch.Generator().manual_seed(42))
        sampler = DistributedSampler(train, seed=args.seed)
        loader = DataLoader(train, sampler=sampler)
        for epoch in range(3):
            sampler.set_epoch(epoch + args.first_rank_epoch)
            for x in loader:
                model(x).backward()
    """,
    "split before each rank is seeded": """
        torch.manual_seed(args.seed)
        train, held_out = torch.utils.data.random_split(data, [9, 1])
        torch.manual_seed(args.seed + local_rank)
        loader = DataLoader(train, sampler=DistributedSampler(train, shuffle=False))
        for x in loader:
            model(x).backward()
    """,
    "one share where there is one process, and all of the data in evaluation": """
        sampler = DistributedSampler(data) if args.distributed else DistributedSampler(data, 1, 0)
        whole = DataLoader(held_out, sampler=DistributedSampler(held_out, num_replicas=1, rank=0, shuffle=False))
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x in DataLoader(data, sampler=sampler):
                model(x).backward()
            with torch.no_grad():
                outputs = [model.module(x) for x in whole]
    """,
    "an optimizer that the first rank has alone": """
        if dist.get_rank() == 0:
            probe = torch.optim.SGD(own.parameters(), lr=0.1)
        for epoch in range(3):
            train(model)
            if dist.get_rank() == 0:
                probe.step()
    """,
    "an optimizer of another model, that the first rank alone steps": """
        probe = torch.nn.Linear(2, 2)
        other = torch.optim.SGD(probe.parameters(), lr=0.1)
        for x in batches:
            model(x).mean().backward()
            if dist.get_rank() == 0:
                other.step()
    """,
    "a loop that ends by what all ranks count alike, and a loss that is shown": """
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        steps = seen = 0
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            steps += 1
            seen += len(x)
            if steps == 100 or seen > 5000:
                break
            if loss.item() > 10:
                log(loss)
                continue
    """,
    "a batch that is too short, and a scaler that may be missing": """
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for batch in loader:
            inputs, targets = batch
            if len(inputs) < 2:
                continue
            loss = criterion(model(inputs), targets)
            if scaler is not None:
                scaler.scale(loss / steps).backward()
                continue
            criterion(model(inputs), targets).backward()
    """,
    "a loss that ends everything": """
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for x in loader:
            loss = model(x).mean()
            if not torch.isfinite(loss):
                raise FloatingPointError
            loss.backward()
    """,
    "the model beside its wrapper, and a copy": """
        import copy
        plain = make().cuda()
        ddp = DistributedDataParallel(plain, device_ids=[local_rank])
        average = copy.deepcopy(plain)
        for x in batches:
            loss = ddp(x).mean() + plain.penalty(x)
            loss.backward()
        with torch.no_grad():
            outputs = plain(x)
        average(x).mean().backward()
    """,
    "a critic beside its wrapper, for the step of the generator": """
        class Trainer:
            def __init__(self, generator, critic):
                self.critic = critic.cuda()
                self.judge = DistributedDataParallel(self.critic, device_ids=[local_rank])
                self.generator = DistributedDataParallel(generator.cuda(), device_ids=[local_rank])
            def judge_step(self, x):
                self.judge(x).mean().backward()
            def generator_step(self, z):
                fake = self.generator(z)
                loss = -self.critic(fake).mean()
                loss.backward()
    """,
    "the name of the model is given away": """
        plain = make().cuda()
        ddp = DistributedDataParallel(plain, device_ids=[local_rank])
        plain = make_teacher()
        loss = plain(x).mean()
        loss.backward()
        plain.head = torch.nn.Linear(4, 4)
    """,
    "a new layer, and a new wrapper": """
        model.module.head = torch.nn.Linear(4, 4).cuda()
        model = DistributedDataParallel(model.module, device_ids=[local_rank])
    """,
    "frozen and trained in turn behind the wrap": """
        for p in frozen.parameters():
            p.requires_grad = False
        for step in range(9):
            for p in model.parameters():
                p.requires_grad = True
            model.module.head.requires_grad_(False)
    """,
    "trained again, and then wrapped": """
        net.requires_grad_(False)
        net.head.requires_grad_(True)
        other = DistributedDataParallel(net)
    """,
    "a new layer without parameters": """
        model.module.head = torch.nn.Identity()
    """,
    "a loss that another file brings together": f"""
        from utils import mean_over_ranks
        {OWN_TOTAL}
            scheduler.step(mean_over_ranks(total))
    """,
    "a loss that an object of another file brings together, in a method": f"""
        from utils import Comm
        comm = Comm()
        def shared(number):
            return comm.mean(number) if comm else sync(number)
        {OWN_TOTAL}
            total = comm.mean(total)
            if total > 5:
                break
            scheduler.step(total)
    """,
    "one rank steps, and sends its weights": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(3):
            if dist.get_rank() == 0:
                optimizer.step()
            for parameter in model.module.parameters():
                dist.broadcast(parameter.data, 0)
    """,
    "ranks of matrices, in names that end so": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if args.lora_rank == 0:
            model.module.load_state_dict(torch.load("a.pt", map_location="cpu"))
        sampler = DistributedSampler(data, seed=args.seed + matrix_rank)
        loader = DataLoader(data, sampler=sampler)
        for epoch in range(3):
            sampler.set_epoch(epoch + lora_rank)
            for x in loader:
                model(x).mean().backward()
                if config["lora_rank"] == 0:
                    optimizer.step()
    """,
    "ranks of matrices, one after the other": """
        rank = dist.get_rank()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for rank in [1, 4, 8]:
            if rank == 1:
                optimizer.zero_grad()
        kept = [optimizer.step() for rank in (2, 4)]
    """,
    "the other ranks step, too": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if dist.get_rank() == 0:
            print("save")
            optimizer.step()
        else:
            optimizer.step()
    """,
    "what was shuffled is sent to all ranks": """
        import random
        random.seed(dist.get_rank())
        names = sorted(os.listdir("data"))
        random.shuffle(names)
        sent = [names]
        dist.broadcast_object_list(sent, 0)
        names = sent[0]
        sampler = DistributedSampler(Files(names[:900]))
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for x in DataLoader(Files(names[:900]), sampler=sampler):
                model(x).mean().backward()
    """,
    "the best weights are tested by one rank at the end": """
        def test(net):
            net.load_state_dict(torch.load("best.pt", map_location="cpu"))
            return net(batches[0])
        for x in batches:
            model(x).mean().backward()
        if dist.get_rank() == 0:
            model.module.load_state_dict(torch.load("best.pt", map_location="cpu"))
            with torch.no_grad():
                test(model.module)
    """,
    "a hook that one rank has": """
        class Saver:
            def after_epoch(self, model):
                torch.save(model.state_dict(), "last.pt")
        hooks = []
        if dist.get_rank() == 0:
            hooks.append(Saver())
        for epoch in range(3):
            for hook in hooks:
                hook.after_epoch(model)
    """,
    "one branch for ranks, one without": """
        if distributed:
            other = DistributedDataParallel(plain)
        else:
            other = plain
        classes = other.module.classes if distributed else other.classes
        if not distributed:
            print(other.classes)
        def classes_of(net):
            return net.module.classes if isinstance(net, DistributedDataParallel) else net.classes
        classes_of(other)
    """,
    "one of several wrappers": """
        if strategy == "sharded":
            other = Sharded(plain)
        else:
            other = DistributedDataParallel(plain)
        if strategy == "sharded":
            other.clip_grad_norm_(1.0)
    """,
    "the model inside is read, saved and run without gradients": """
        raw = model.module if distributed else model
        def sample(net, x):
            with torch.no_grad():
                return net(x)
        for x in batches:
            model(x).mean().backward()
            raw.count(x)
            if dist.get_rank() == 0:
                torch.save(raw.state_dict(), "last.pt")
                sample(raw, x)
    """,
    "a sampler that is made anew, with a seed": """
        for epoch in range(3):
            loader = DataLoader(data, sampler=DistributedSampler(data, seed=epoch))
            for x in loader:
                model(x).mean().backward()
    """,
    "a step by the norm of all ranks' gradients, a loss that may be missing": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for i, x in enumerate(loader):
            loss = model(x).mean()
            if loss is None or x.size(0) < 2 or i > 99:
                break
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if torch.isfinite(norm):
                optimizer.step()
    """,
    "ranks agree on a bad loss": """
        def any_of_all(flag):
            flag = flag.float()
            dist.all_reduce(flag)
            return flag.item() > 0
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        for x in loader:
            loss = model(x).mean()
            if any_of_all(torch.isnan(loss)):
                continue
            loss.backward()
    """,
    "a decision by all of the held-out data, under the names of the loop that trains": """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
        total = 0.0
        for x, y in loader:
            loss = model(x, y)
            loss.backward()
            total += loss.item()
        losses, total = [], 0.0
        for x, y in DataLoader(valid):
            loss = model(x, y)
            total += loss.item()
            losses.append(loss.item())
        scheduler.step(total + sum(losses))
    """,
    "all ranks go through a function that one rank saves in": """
        def save(path):
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), path)
            dist.barrier()
        if dist.get_rank() == 0:
            print("saving")
        save("last.pt")
    """,
}


def found(body: str) -> set[str]:
    return found_in(f"{code_of(HEAD)}{code_of(body)}dist.destroy_process_group()\n")


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_nothing_is_said_of_right_code(body: str) -> None:
    assert found(body) == set()


ONE_RANK = [
    "dist.get_rank() in [0]",
    "dist.get_rank() in [-1, 0]",
    "local_rank in (-1, 0)",
    "dist.get_rank() == 0 or is_main_process()",
    "not distributed or dist.get_rank() in {0}",
    "not dist.get_rank() > 0",
    "0 == local_rank",
    "local_rank < 1",
    "dist.get_rank() == 0 and epoch > 0",
    "dist.get_rank() % torch.cuda.device_count() == 0",
    'os.environ["RANK"] == "0"',
    'os.environ.get("RANK") in (None, "0")',
]
SEVERAL_RANKS = [  # may be all that there are, or a group of their own
    "dist.get_rank() in [0, 1]",
    "dist.get_rank() in {0, 1}",
    "dist.get_rank() in [-1, 0, 1]",
    "dist.get_rank() in ranks_of_this_node",
    "dist.get_rank() in [first, last]",
    "dist.get_rank() == 0 or dist.get_rank() == 1",
    "not dist.get_rank() not in (0, 1)",
    "not dist.get_rank() > 1",
    "local_rank == -1",
    "not local_rank != -1",
    "0 > local_rank",
    "dist.get_rank() % 2 == 0",
    "dist.get_rank() > 14",
    "dist.get_rank() >= 16",
    "not dist.get_rank() < 15",
    "dist.get_rank() > 0 and epoch > 0",
    'os.environ["RANK"] in ("0", "1")',
]


@pytest.mark.parametrize("condition", [*ONE_RANK, *SEVERAL_RANKS])
def test_one_rank_is_known_in_each_of_its_spellings_and_several_are_not_one(condition: str) -> None:
    assert found(f"if {condition}:\n    dist.broadcast(x, 0)") == (
        {"DDP608"} if condition in ONE_RANK else set()
    )
