"""LBFGS with a closure and a line search."""
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(24, 5)
y = x @ torch.randn(5, 2) + 0.1 * torch.randn(24, 2)
model = nn.DataParallel(nn.Linear(5, 2).cuda())
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
rows, target = x.cuda(), y.cuda()


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(rows), target)
    loss.backward()
    return loss


for step in range(4):
    loss = optimizer.step(closure)
torch.save(model.module.state_dict(), "lbfgs.pt")
