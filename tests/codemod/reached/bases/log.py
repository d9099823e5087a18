import torch


class Log:
    def keep(self, x, path=None):
        torch.save(x, path)


class Net(torch.nn.Module):
    def forward(self, x):
        log.keep(x)
        return x


log = Log()
net = torch.nn.DataParallel(Net())
