# corpus: idioms = framework loop (ignite/torchnet Engine)
# corpus: answer = 0 DDP208:22 DDP208:22 DDP208:22
"""The trainer is asked for strategy="dp": notes say what to write in place of it."""
import torch
import pytorch_lightning as pl


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
trainer = pl.Trainer(gpus=2, strategy='dp', max_epochs=2)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=8))
