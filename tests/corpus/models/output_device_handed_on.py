# corpus: idioms = torch.nn.DataParallel; output_device=; device_ids from config/args/variable; .cuda(arg)
# corpus: worlds = 2
"""A processor in the manner of skeleton recognition: one device, under five names, in a list or as a number."""

import argparse

import torch
import torch.nn as nn
import torch.optim as optim


class Joints(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.mix = nn.Linear(6, 16)
        self.bn = nn.BatchNorm1d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.mix(x))))


class Evaluator:
    def __init__(self, model, device):
        self.model = model
        self.place = device

    def run(self, x, y):
        self.model.eval()
        with torch.no_grad():
            right = (self.model(x.to(self.place)).argmax(1) == y.to(self.place)).sum().item()
        self.model.train()
        return right / len(y)


class Processor:
    def __init__(self, arg):
        self.arg = arg
        self.load_model()
        self.optimizer = optim.SGD(self.model.parameters(), lr=arg.base_lr, momentum=0.9, nesterov=True)
        self.evaluator = Evaluator(self.model, device=self.output_device)

    def load_model(self):
        output_device = self.arg.device[0] if type(self.arg.device) is list else self.arg.device
        self.output_device = output_device
        self.model = Joints(4).cuda(output_device)
        self.loss = nn.CrossEntropyLoss().cuda(output_device)
        if type(self.arg.device) is list:
            if len(self.arg.device) > 1:
                self.model = nn.DataParallel(self.model, device_ids=self.arg.device, output_device=output_device)

    def start(self):
        data = torch.randn(30, 6)
        labels = torch.randint(0, 4, (30,))
        for epoch in range(self.arg.num_epoch):
            for first in range(0, 30, 8):
                x = data[first : first + 8].float().cuda(self.output_device)
                y = labels[first : first + 8].long().cuda(self.output_device)
                weight = torch.ones(4, device=self.output_device)
                loss = self.loss(self.model(x), y) + 0.01 * weight.sum()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print("epoch", epoch, "loss", loss.item(), "accuracy", self.evaluator.run(data, labels))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=int, default=[0, 1], nargs="+")
    parser.add_argument("--base-lr", type=float, default=0.1)
    parser.add_argument("--num-epoch", type=int, default=3)
    torch.manual_seed(3)
    Processor(parser.parse_args()).start()
