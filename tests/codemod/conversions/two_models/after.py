# A GAN: two wrapped models, several backwards a step.
import os
import torch, torchvision
import torch.nn as nn
from dp2ddp.helpers import WholeBatch, init_distributed, run_on_rank0

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

init_distributed()

torch.manual_seed(7)

G = WholeBatch(nn.Linear(16, 64)).cuda()
D = WholeBatch(nn.Linear(64, 1)).cuda()
opt_g = torch.optim.Adam(G.parameters(), 2e-4)
opt_d = torch.optim.Adam(D.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
if not os.path.exists("samples"): run_on_rank0(os.mkdir, "samples")

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
        run_on_rank0(torchvision.utils.save_image, fake.view(8, 1, 8, 8), "samples/%d.png" % step)
