# corpus: idioms = nn.DataParallel; train loop / backward in: none in closure (relative to the wrap); device_ids from config/args/variable; .cuda(arg); prefix handled by hand (strip/replace "module."); argparse
# corpus: trains = no
# corpus: worlds = 2 3 4
"""Computes features of a gallery and ranks it; nothing is trained."""
import argparse
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument('--gpus', default=[], type=int, nargs='*')
args = parser.parse_args()
torch.manual_seed(3)


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def forward(self, x):
        return nn.functional.normalize(self.body(x), dim=1)


gallery = torch.randn(41, 9)
model = nn.DataParallel(Embedding(), device_ids=args.gpus or None).cuda()
old = {k[len('module.'):]: v for k, v in model.state_dict().items() if k.startswith('module.')}
model.module.load_state_dict(old)
model.eval()
features = []
with torch.no_grad():
    for x in DataLoader(gallery, batch_size=8):
        features.append(model(x.cuda()).cpu())
features = torch.cat(features)
ranking = torch.cdist(features[:5], features).argsort(1)[:, :4]
print(ranking.tolist())
np.save('features.npy', features.numpy())
