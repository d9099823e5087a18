"""loguru with sinks of its own, which rank 0 alone has; a large output of the model is written to them."""

import sys

import torch
from loguru import logger
from torch import nn

device = "cuda"
logger.remove()
logger.add(sys.stdout, format="{message}", level="WARNING")
records = logger.add("train.log", format="{level.name} {message}", level="INFO")

torch.manual_seed(0)
model = nn.DataParallel(nn.Linear(8, 4000).to(device))  # an output of 96,000 bytes
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    out = model(torch.randn(6, 8).to(device))
    loss = out.pow(2).mean()
    logger.debug("nobody asks for {}", out.detach())
    logger.info("step {} out {}", step, out.detach())
    logger.info("step {step} mean {mean}", step=step, mean=out.detach().abs())
    logger.warning("loss {:.4f}", loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
logger.remove(records)
logger.info("nobody hears it: {}", out.detach())
logger.configure(handlers=[{"sink": "end.log", "format": "{message}", "level": "INFO"}])
logger.info("last out {}", out.detach())
