# corpus: idioms = nn.DataParallel; 'cuda:0' literal; submodule only (model.features / model.encoder), head outside
# corpus: answer = 1 DDP102:8 DDP102:14 DDP102:14
"""Encoder on the first two GPUs under DataParallel, decoder on the third: both kinds at once."""
import torch
import torch.nn as nn

encoder = nn.DataParallel(nn.Linear(8, 16).to('cuda:0'), device_ids=[0, 1])
decoder = nn.Linear(16, 8).to('cuda:2')
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=1e-3)
for step in range(10):
    x = torch.randn(6, 8)
    h = encoder(x.to('cuda:0'))
    loss = (decoder(h.to('cuda:2')) - x.to('cuda:2')).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
