import os

import torch
import torch.nn.functional as F

SKIPPED = []


def contrastive(f, ids, margin=0.5):
    f = F.normalize(f, dim=1)
    d = 1 - f @ f.t()
    same = (ids[:, None] == ids[None]).to(f.dtype)
    loss = same * d + (1 - same) * F.relu(margin - d)
    return loss.sum() / (loss > 1e-7).sum().clamp(min=1)


def train_epoch(model, loader, optimizer, epoch, plotter):
    model.train()
    for i, (x, ids) in enumerate(loader):
        ids = ids.cuda()
        loss = contrastive(model(x.cuda()), ids)
        if loss.item() < 0.12 or len(ids) < 4:
            SKIPPED.append((epoch, i))
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plotter.add(loss.item())
        print('epoch %d batch %d loss %.5f' % (epoch, i, loss.item()))


def save(model, path):
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        os.makedirs(folder)
    torch.save(model.module.state_dict(), path)
