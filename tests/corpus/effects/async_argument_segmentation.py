# corpus: idioms = cuda(async=); nn.DataParallel; module level, bare; DP(...).cuda(); volatile=; loss.data[0]; Variable(); unconditional
# corpus: runs = no
"""Written for Python 3.5 and torch 0.3: async is a keyword now, so the original cannot run any more."""
import torch
import torch.nn as nn
from torch.autograd import Variable

model = nn.DataParallel(nn.Conv2d(3, 2, 1)).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    input, target = torch.randn(4, 3, 5, 5), torch.zeros(4, 5, 5).long()
    input = input.cuda(async=True)
    target = target.cuda(async=True)
    output = model(Variable(input))
    loss = criterion(output, Variable(target))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.data[0])
output = model(Variable(input, volatile=True))
