# corpus: idioms = nn.parallel.DataParallel; next(self.parameters()) reached from forward (StopIteration in DP replicas, torch>=1.5); .cuda()/'cuda' without index inside forward(); set_device/default tensor type; 'cuda:0' literal; .cuda(arg); class method (other); method parallelize()/multi_gpu()/set_device() does the wrap later; hidden state / memory carried from batch to batch; dict / list / non-tensor / None / raw samples passed to the wrapped forward; buffer or counter written in forward; len(gpu_ids)/num_gpus from config; self.attr = DP(...); clip_grad; lr / phase / stop schedule driven by locally counted samples or tokens
# corpus: worlds = 2 3
"""A vocoder which looks for its own device in forward, and is wrapped by its owner's multi_gpu()."""
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.cuda.set_device(0)


class Resample(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.conv = nn.Conv1d(1, 1, 2 * scale + 1, padding=scale, bias=False)
        self.conv.weight.data.fill_(1. / (2 * scale + 1))

    def forward(self, m):
        return self.conv(m.repeat_interleave(self.scale, -1))


class WaveRNN(nn.Module):
    def __init__(self, rnn_dims=6, classes=11):
        super().__init__()
        self.up = Resample(3)
        self.I = nn.Linear(2, rnn_dims)
        self.rnn = nn.GRU(rnn_dims, rnn_dims, batch_first=True)
        self.fc = nn.Linear(rnn_dims, classes)
        self.register_buffer('step', torch.zeros(1, dtype=torch.long))
        self.n_classes, self.rnn_dims = classes, rnn_dims

    def _device(self, x):
        try:
            return next(self.parameters()).device
        except StopIteration:  # replicas have no parameters since torch 1.5
            return x.device

    def forward(self, x, mels, options=None):
        device = self._device(x)
        self.step += 1
        bsize = x.size(0)
        h1 = torch.zeros(1, bsize, self.rnn_dims, device=device)
        noise = torch.full((bsize, 1, 1), 0.5).cuda()
        m = self.up(mels).transpose(1, 2)
        inp = torch.cat([x.unsqueeze(-1), m[:, :x.size(1)]], 2)
        out, _ = self.rnn(self.I(inp) * noise, h1)
        # weight decay of one's own; replicas have no parameters, so this has always been zero there
        reg = sum(p.pow(2).sum() for p in self.parameters()) if options and options['reg'] else 0.
        return self.fc(out), torch.ones(bsize, 1, device=device) * reg

    def get_step(self):
        return self.step.data.item()


class Solver(object):
    def __init__(self, config):
        self.config = config
        self.model = WaveRNN().cuda(config['gpus'][0])
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.tokens = 0

    def multi_gpu(self):
        if len(self.config['gpus']) > 1:
            self.model = nn.parallel.DataParallel(self.model, device_ids=self.config['gpus'])
        print('%d parameters' % sum(p.numel() for p in self.model.parameters()))

    def core(self):
        return self.model.module if hasattr(self.model, 'module') else self.model

    def set_lr(self):
        lr = 1e-2 * min(1., self.tokens / 300.) * (0.5 * (1 + math.cos(min(self.tokens / 2500., 1.) * math.pi)))
        for g in self.optimizer.param_groups:
            g['lr'] = lr
        return lr

    def fit(self, batches, epochs):
        for e in range(1, epochs + 1):
            running = 0.
            self.model.train()
            for i, (x, y, m) in enumerate(batches, 1):
                x, m, y = x.cuda(), m.cuda(), y.cuda(0)
                y_hat, reg = self.model(x, m, {'reg': True, 'names': ['a', 'b', 'c', 'd', 'e', 'f']})
                loss = F.cross_entropy(y_hat.transpose(1, 2), y) + 1e-3 * reg.mean()
                self.optimizer.zero_grad()
                loss.backward()
                grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 4.)
                self.tokens += y.numel()
                lr = self.set_lr()
                self.optimizer.step()
                running += loss.item()
            step = self.core().get_step()
            print('| Epoch: %d | Loss: %.4f | norm %.4f | lr %.5f | step %d' % (e, running / i, grad_norm, lr, step))
            if e % 2 == 0:
                os.makedirs('wavernn', exist_ok=True)
                torch.save(self.core().state_dict(), 'wavernn/wave_step%dK.pyt' % step)


if __name__ == '__main__':
    torch.manual_seed(9)
    rs = np.random.RandomState(4)
    data = []
    for n in (6, 6, 6, 4, 3):
        s = rs.randint(0, 11, (n, 10))
        data.append((torch.from_numpy(s[:, :-1] / 5. - 1).float(), torch.from_numpy(s[:, 1:]), torch.from_numpy(rs.rand(n, 1, 3)).float()))
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    print(device.type)
    solver = Solver({'gpus': list(range(torch.cuda.device_count()))})
    solver.multi_gpu()
    solver.fit(data, 4)
