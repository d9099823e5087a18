# corpus: idioms = not an nn.Module (loss tensor wrapped; crashes on >1 GPU); nn.DataParallel; several models wrapped in one script
# corpus: answer = 1 DDP903:13
"""Deep Q network; the author wrapped the loss, too. On more than one GPU this never ran."""
import torch
import torch.nn as nn

net = nn.DataParallel(nn.Linear(4, 2)).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(8):
    states, rewards = torch.randn(16, 4).cuda(), torch.randn(16).cuda()
    q = net(states).max(1)[0]
    loss = nn.functional.smooth_l1_loss(q, rewards)
    loss = nn.DataParallel(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
