# corpus: idioms = functional data_parallel; module level, bare; device_ids from config/args/variable; device_count() used; hidden state / memory carried from batch to batch; dim=1; manual adjust_learning_rate; clip_grad; gradient accumulation
# corpus: worlds = 2 3
"""Functional data_parallel straight in the loop; two calls, once with keyword arguments and dim."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import data_parallel

torch.manual_seed(1111)
gpus = list(range(torch.cuda.device_count()))
emsize, nhid, bptt, bsz, vocab = 6, 8, 5, 6, 19


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(vocab, emsize)
        self.rnn = nn.GRU(emsize, nhid)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, h=None):
        e = self.drop(self.emb(x))
        o, h = self.rnn(e, h)
        return self.drop(o), h


encoder = Encoder().cuda()
decoder = nn.Linear(nhid, vocab).cuda()
params = list(encoder.parameters()) + list(decoder.parameters())
corpus = torch.randint(0, vocab, (21 * bsz,), generator=torch.Generator().manual_seed(4)).view(bsz, -1).t().contiguous()
lr, best = 2.0, None

for epoch in range(1, 4):
    h = torch.zeros(1, bsz, nhid).cuda()
    total = 0.
    encoder.train()
    for batch, i in enumerate(range(0, corpus.size(0) - 1, bptt)):
        n = min(bptt, corpus.size(0) - 1 - i)
        x, y = corpus[i:i + n].cuda(), corpus[i + 1:i + 1 + n].cuda()
        h = h.detach()
        out, h = data_parallel(encoder, (x, h), device_ids=gpus, dim=1)
        scores = data_parallel(decoder, out.transpose(0, 1).contiguous(), gpus).transpose(0, 1)
        loss = F.cross_entropy(scores.reshape(-1, vocab), y.reshape(-1))
        loss.backward()
        if batch % 2 == 1:
            torch.nn.utils.clip_grad_norm_(params, 0.25)
            with torch.no_grad():
                for p in params:
                    p.add_(p.grad, alpha=-lr)
                    p.grad.zero_()
        total += loss.item() * n
    print('| end of epoch {:3d} | lr {:.2f} | ppl {:8.3f}'.format(epoch, lr, math.exp(total / (corpus.size(0) - 1))))
    if best is None or total < best:
        best = total
    else:
        lr /= 4.0
opt = torch.optim.SGD(decoder.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
for step in range(4):
    opt.zero_grad()
    out, _ = data_parallel(encoder, corpus[:4, :5].cuda(), gpus, None, 1, {'h': None})
    scores = data_parallel(decoder, out.detach().reshape(-1, nhid), gpus)
    F.cross_entropy(scores, corpus[1:5, :5].reshape(-1).cuda()).backward()
    opt.step()
torch.save({'encoder': encoder.state_dict(), 'decoder': decoder.state_dict()}, 'lm.pt')
