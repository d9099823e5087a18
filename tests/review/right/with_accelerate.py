"""Accelerate owns the loop's surroundings."""
import torch
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def main(net, data):
    accelerator = Accelerator(log_with="wandb")
    loader = DataLoader(data, batch_size=8, shuffle=True)
    optimizer = torch.optim.AdamW(net.parameters())
    model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(epoch, accelerator.reduce(loss.detach(), "mean").item())
        if isinstance(model, DistributedDataParallel):
            state = model.module.state_dict()
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
        if accelerator.is_main_process:
            print("saved", len(state))
    accelerator.end_training()
