# corpus: idioms = cuda(async=); torch.nn.DataParallel; function main/train/run; rebinds the same name; volatile=; loss.data[0]; architecture name (alexnet/vgg -> wrap .features only); submodule obj.attr = DP(obj.attr)
# corpus: runs = no
import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--arch', default='vgg')
best_prec1 = 0


class VGG(nn.Module):
    def __init__(self):
        super(VGG, self).__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
        self.classifier = nn.Linear(36, 2)

    def forward(self, x):
        x = self.features(x)
        return self.classifier(x.view(x.size(0), -1))


def main():
    args = parser.parse_args()
    model = VGG()
    if args.arch.startswith('alexnet') or args.arch.startswith('vgg'):
        model.features = torch.nn.DataParallel(model.features)
        model.cuda()
    else:
        model = torch.nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for i in range(8):
        input, target = torch.randn(6, 3, 5, 5), torch.zeros(6).long()
        target = target.cuda(async=True)
        input_var = torch.autograd.Variable(input.cuda(async=True))
        loss = nn.functional.cross_entropy(model(input_var), torch.autograd.Variable(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.data[0])
    validate(model)


def validate(model):
    model.eval()
    input_var = torch.autograd.Variable(torch.randn(3, 3, 5, 5), volatile=True)
    print(model(input_var).data.sum())


if __name__ == '__main__':
    main()
