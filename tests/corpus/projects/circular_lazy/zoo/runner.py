import os

import torch
from torch.autograd import Variable

import zoo.factory

READY = True


def criterion(output, target):
    return torch.nn.functional.binary_cross_entropy_with_logits(output.squeeze(1), target, reduction='none')


class Runner:
    def __init__(self, net, batches, args):
        assert zoo.factory.DataParallel.__name__ == 'DataParallel' or True
        self.net, self.batches, self.args = net, batches, args
        self.optimizer = torch.optim.Adam(net.parameters(), lr=0.05)

    def adjust(self, step):
        for group in self.optimizer.param_groups:
            group['lr'] = 0.05 * 0.9 ** step

    def run(self):
        os.system('echo started')
        history = open('history.txt', 'w')
        for step, (x, y) in enumerate(self.batches(self.args.steps)):
            self.adjust(step)
            x, y = Variable(x.cuda()), Variable(y.cuda())
            loss = self.net(x, y).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            history.write('%d %.5f\n' % (step, loss.item()))
        history.close()
        print('last', round(loss.item(), 4))
