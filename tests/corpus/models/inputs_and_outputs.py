# corpus: idioms = torch.nn.DataParallel; dict / list / non-tensor / None / raw samples passed to the wrapped forward; batch dim is not 0 (dim=1), or DataLoader batch is not what DP splits; tensors left on the CPU, DP.scatter does the copy; computed inside the wrapped forward, gathered, then .mean(); computed inside the wrapped forward, gathered, then .sum(); function main/train/run; mean over a data-dependent count (ignore_index, mask, num_pos, padding) - replica level; attribute set on the wrapper object; .cuda()/'cuda' without index inside forward()
# corpus: worlds = 2 3 4
"""A scene graph model fed with whatever was at hand: nested inputs, short batches, every kind of output."""
import collections
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings('ignore')
Frame = collections.namedtuple('Frame', ['image', 'boxes', 'meta'])
Loss = collections.namedtuple('Loss', 'cls box')


class SceneNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.img = nn.Linear(6, 8)
        self.box = nn.Linear(4, 8)
        self.rel = nn.ModuleDict({'on': nn.Linear(8, 3), 'near': nn.Linear(8, 3)})
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, frame, labels=None, *rest, mode='train', weights=None, table=None, flags=()):
        h = torch.tanh(self.img(frame.image)) + self.box(frame.boxes['xyxy']).mean(1)
        if frame.boxes.get('score') is not None:
            h = h * frame.boxes['score'].mean(1, keepdim=True)
        assert isinstance(frame.meta, (list, tuple, dict, str)) and (table is None or isinstance(table, np.ndarray))
        if table is not None:
            h = h * torch.from_numpy(table).to(h)
        for extra in rest:
            if torch.is_tensor(extra):
                h = h + extra[0] if extra.dim() == 3 else h + extra
        logits = collections.OrderedDict((k, self.rel[k](h) * self.scale) for k in self.rel)
        if mode == 'logits':
            return logits
        if mode == 'nested':
            return [h, (logits['on'], [logits['near'].sum(), None]), {'empty': None, 'n': torch.tensor(len(h)).cuda()}]
        if mode == 'nothing':
            return None
        cls = sum(F.cross_entropy(v, labels[i], ignore_index=-1, reduction='sum') for i, v in enumerate(logits.values()))
        n = sum((y >= 0).sum() for y in labels).clamp(min=1)
        return Loss(cls / n, (h.pow(2) * (weights if weights is not None else 1.)).mean()), h.norm()


def batch(rng, n, full=True):
    boxes = {'xyxy': torch.from_numpy(rng.rand(n, 2, 4)).float(), 'score': torch.from_numpy(rng.rand(n, 2)).float() if full else None}
    frame = Frame(torch.from_numpy(rng.randn(n, 6)).float(), boxes, ['f%02d' % i for i in range(3)])
    labels = [torch.from_numpy(rng.randint(-1, 3, n)) for _ in range(2)]
    return frame, labels


def main():
    torch.manual_seed(0)
    rng = np.random.RandomState(1)
    model = torch.nn.DataParallel(SceneNet().cuda())
    model.name = 'scene'
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.1)
    table = np.linspace(0.5, 1.5, 8).astype('float32')
    for step, n in enumerate([8, 8, 7, 5, 3, 8, 4, 2, 1, 8]):
        frame, labels = batch(rng, n, full=step % 3 != 1)
        moved = [y.cuda() for y in labels]
        w = torch.rand(n, 1)
        if n < 5:  # fewer rows than GPUs: keyword arguments that are no tensors would call for all of them
            loss, norms = model(frame, moved, None)
        else:
            rest = (torch.rand(n, 8), 'note') if step % 2 else (None, 3)
            replicas = len(frame.image.chunk(torch.cuda.device_count()))
            if replicas == torch.cuda.device_count():
                loss, norms = model(frame, moved, *rest, weights=w, table=table, flags=())
            else:
                loss, norms = model(frame, moved, *rest)
        total = loss.cls.mean() + 0.01 * loss.box.sum() + 1e-3 * norms.mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        print('%s %d rows %d loss %.5f parts %d norms %s' % (
            model.name, step, n, total.item(), loss.cls.numel(), [round(v, 3) for v in norms.tolist()]))
    model.eval()
    with torch.no_grad():
        frame, labels = batch(rng, 9)
        out = model(frame, mode='logits') if torch.cuda.device_count() < 4 else model.module(
            Frame(frame.image.cuda(), {k: v.cuda() for k, v in frame.boxes.items()}, frame.meta), mode='logits')
        print(type(out).__name__, list(out), out['on'].shape, round(out['near'].sum().item(), 4))
        frame, labels = batch(rng, 8)
        h, (on, (near, none)), rest = model(frame, mode='nested')
        print(h.shape, on.shape, near.shape, none, rest['empty'], rest['n'].tolist())
        print(model(frame, mode='nothing'), len(model.state_dict()), sorted(model.state_dict())[0])
    torch.save(model.state_dict(), 'scene.pth')


if __name__ == '__main__':
    main()
