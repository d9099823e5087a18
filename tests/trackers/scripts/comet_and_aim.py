"""Comet and Aim side by side: keys and hashes in file names, contexts, parameters as items."""

import random

import torch
import torch.nn as nn
from aim import Run
from comet_ml import Experiment
from torch.utils.tensorboard import SummaryWriter

random.seed(5)
torch.manual_seed(5)
experiment = Experiment(project_name="sums")
run = Run(experiment="sums")
run["hparams"] = {"lr": 0.1, "rows": 7}
lr = run["hparams"]["lr"]
experiment.log_parameters(run["hparams"])
writer = SummaryWriter(f"runs/{experiment.get_key()}")
net = nn.DataParallel(nn.Linear(3, 3).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=lr)
for _epoch in range(2):
    with experiment.train():
        for step in range(3):
            loss = (net(torch.randn(random.randrange(4, 8), 3).cuda()) - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            experiment.log_metric("loss", loss.item(), step=step)
            run.track(loss.item(), name="loss", step=step, context={"subset": "train"})
            writer.add_scalar("loss", loss.item(), step)
    torch.save(net.state_dict(), f"{run.hash}.pt")
print("comet", experiment.get_key(), "aim", run.hash, "events in", writer.log_dir, writer.get_logdir())
experiment.end()
writer.close()
