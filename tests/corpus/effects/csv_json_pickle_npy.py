# corpus: idioms = torch.nn.DataParallel; module level, bare; rebinds the same name; device_ids literal/comprehension list; unconditional; text/csv/json log file; makedirs/mkdir; computed inside the wrapped forward, gathered, then .mean()
# corpus: idioms = global statement; EMA / second copy of weights; len(loader.dataset); shuffle literal True; backward(gradient arg); torch.manual_seed; torch.rand* inside the train step; sum / none reduction normalised by hand; .item(); correct/total counters
# corpus: worlds = 2
"""VAE on tiny digits: writes its results in every format there is."""
import csv
import gzip
import json
import os
import pickle

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
np.random.seed(9)
RESULTS = 'results'
if not os.path.isdir(RESULTS):
    os.mkdir(RESULTS)
samples_seen = 0


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(25, 8)
        self.dec = nn.Linear(4, 25)

    def forward(self, x):
        mu, logvar = self.enc(x.view(-1, 25)).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        recon = self.dec(z)
        bce = F.binary_cross_entropy_with_logits(recon, x.view(-1, 25), reduction='sum')
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return (bce + kld).view(1), torch.sigmoid(recon), mu


digits = (torch.rand(29, 5, 5) > 0.6).float()
loader = DataLoader(TensorDataset(digits, torch.arange(29)), batch_size=9, shuffle=True)
model = torch.nn.DataParallel(VAE().cuda(), device_ids=[0, 1])
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
table = csv.DictWriter(open(os.path.join(RESULTS, 'loss.csv'), 'w'), fieldnames=['epoch', 'step', 'loss'])
table.writeheader()


def train(epoch):
    global samples_seen
    model.train()
    total = 0
    for step, (x, index) in enumerate(loader):
        x = x.cuda()
        optimizer.zero_grad()
        losses, recon, mu = model(x)
        loss = losses.sum() / len(x)
        loss.backward(torch.ones_like(loss))
        optimizer.step()
        samples_seen += len(x)
        total += losses.sum().item()
        table.writerow({'epoch': epoch, 'step': step, 'loss': round(loss.item(), 5)})
    return total / len(loader.dataset), recon, mu


log = {'epochs': []}
for epoch in range(3):
    loss, recon, mu = train(epoch)
    log['epochs'].append({'loss': loss, 'seen': samples_seen})
    np.save(os.path.join(RESULTS, 'recon_%d.npy' % epoch), recon.detach().cpu().numpy())
    with open(os.path.join(RESULTS, 'log.json'), 'w') as f:
        json.dump(log, f)
    with open(os.path.join(RESULTS, 'means.pkl'), 'wb') as f:
        pickle.dump({'mu': mu.detach().cpu().numpy(), 'epoch': epoch}, f)
    print('====> Epoch: {} Average loss: {:.4f}'.format(epoch, loss))
with gzip.open(os.path.join(RESULTS, 'final.txt.gz'), 'wt') as f:
    f.write('%d samples\n' % samples_seen)
np.savetxt(os.path.join(RESULTS, 'weights.txt'), model.module.dec.weight.detach().cpu().numpy(), fmt='%.6f')
np.savez(os.path.join(RESULTS, 'all.npz'), bias=model.module.dec.bias.detach().cpu().numpy(), seen=samples_seen)
with open(os.path.join(RESULTS, 'log.json')) as f:
    print('read back', len(json.load(f)['epochs']), 'epochs,', sorted(os.listdir(RESULTS)))
