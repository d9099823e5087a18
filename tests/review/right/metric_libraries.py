"""torchmetrics' own synchronization; predictions gathered for a score; a distillation with a frozen teacher."""
import os

import torch
import torch.distributed as dist
import torchmetrics
from sklearn.metrics import roc_auc_score
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.backends.cudnn.benchmark = True


def collect(values):
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return torch.stack(parts, 1).flatten(0, 1)


def main(student, teacher, train_set, test_set):
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    teacher = teacher.cuda().eval().requires_grad_(False)
    model = DDP(student.cuda(), device_ids=[local_rank], static_graph=True)
    accuracy = torchmetrics.Accuracy("multiclass", num_classes=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, 32, sampler=sampler)
    test_loader = DataLoader(test_set, 32, sampler=DistributedSampler(test_set, shuffle=False))
    for epoch in range(10):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            with torch.no_grad():
                wanted = teacher(x).softmax(1)
            out = model(x)
            loss = torch.nn.functional.kl_div(out.log_softmax(1), wanted, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy(out, y)
        train_accuracy = accuracy.compute()
        accuracy.reset()
        model.eval()
        scores, labels = [], []
        with torch.inference_mode():
            for x, y in test_loader:
                scores.append(model(x.cuda()).softmax(1)[:, 1])
                labels.append(y.cuda())
        scores, labels = collect(torch.cat(scores))[: len(test_set)], collect(torch.cat(labels))[: len(test_set)]
        if dist.get_rank() == 0:
            print(epoch, float(train_accuracy), roc_auc_score(labels.cpu(), scores.cpu()))
    dist.destroy_process_group()
