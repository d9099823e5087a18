import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, net, dataset, options, logger, device):
        self.options, self.logger, self.device = options, logger, device
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=options.batch_size, sampler=self.sampler)
        self.model = DistributedDataParallel(net.to(device), device_ids=[device])
        self.optimizer = torch.optim.SGD(self.model.parameters(), options.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer)

    def run_epoch(self):
        self.model.train()
        for x, y in self.loader:
            loss = torch.nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.logger.add(loss.item())
        self.scheduler.step(self.logger.mean())

    def save(self, path):
        torch.save(self.model.module.state_dict(), path)

    def load(self, path):
        self.model.module.load_state_dict(torch.load(path, map_location=self.device))
