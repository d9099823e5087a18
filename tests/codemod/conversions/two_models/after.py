# A GAN: two wrapped models, several backwards a step.
import os
import torch, torchvision
import torch.nn as nn
from torch.nn.parallel import DataParallel as DP
from dp2ddp.templates.ddp import GraphDDP
from dp2ddp.templates.process import join_process_group
from dp2ddp.templates.voice import on_rank_zero

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

join_process_group()

torch.manual_seed(7)

G = GraphDDP(nn.Linear(16, 64), pure_forward=True).cuda()
D = GraphDDP(nn.Linear(64, 1), pure_forward=True).cuda()
opt_g = torch.optim.Adam(G.parameters(), 2e-4)
opt_d = torch.optim.Adam(D.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
if not os.path.exists("samples"): on_rank_zero(os.mkdir, "samples")

for step in range(100):
    real = torch.randn(8, 64).cuda()
    fake = G(torch.randn(8, 16).cuda())

    opt_d.zero_grad()
    bce(D(real), torch.ones(8, 1).cuda()).backward()
    bce(D(fake.detach()), torch.zeros(8, 1).cuda()).backward()
    opt_d.step()

    opt_g.zero_grad()
    bce(D(fake), torch.ones(8, 1).cuda()).backward()
    opt_g.step()
    if step % 50 == 0:
        on_rank_zero(torchvision.utils.save_image, fake.view(8, 1, 8, 8), "samples/%d.png" % step)
