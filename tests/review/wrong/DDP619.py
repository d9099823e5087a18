# The optimizer keeps its state on the CPU, and the model goes to the GPU. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
o = torch.optim.Adagrad(net.parameters())
net.cuda()
model = DDP(net)
# ---
from torch import optim
def main(net):
    o = optim.Adagrad(net.parameters(), lr=0.1)
    net = net.to('cuda')
    model = DDP(net)
# ---
from torch.optim import Adagrad
o = Adagrad(params=net.parameters())
net = net.cuda(0)
model = DDP(net)
