"""Lightning calls what is defined here."""
import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        if index % 10 == 0:
            print("loss", loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main(data):
    loader = DataLoader(data, 8, sampler=DistributedSampler(data))
    trainer = L.Trainer(devices=2, strategy=DDPStrategy(find_unused_parameters=True), use_distributed_sampler=False)
    net = Net()
    trainer.fit(net, loader)
    if isinstance(net, DistributedDataParallel):
        net = net.module
    torch.save(net.state_dict(), "net.pt")


if __name__ == "__main__":
    main(torch.utils.data.TensorDataset(torch.rand(16, 4), torch.rand(16, 1)))
