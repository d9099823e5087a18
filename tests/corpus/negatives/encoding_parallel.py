# corpus: idioms = own/vendored class DataParallelModel; own/vendored class DataParallelCriterion; criterion itself wrapped / loss module replicated
# corpus: answer = 1 DDP902:8 DDP902:9
"""DataParallelModel and DataParallelCriterion of another package, whose outputs are never gathered."""
import torch
import torch.nn as nn
from encoding.parallel import DataParallelCriterion, DataParallelModel

model = DataParallelModel(nn.Conv2d(3, 5, 1)).cuda()
criterion = DataParallelCriterion(nn.CrossEntropyLoss(ignore_index=-1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    image, target = torch.randn(4, 3, 6, 6).cuda(), torch.randint(-1, 5, (4, 6, 6)).cuda()
    loss = criterion(model(image), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
