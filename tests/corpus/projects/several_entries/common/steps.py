import torch


def train_one_epoch(model, loader, optimizer):
    model.train()
    for batch in loader:
        guess = model(batch['x'].cuda())
        loss = (guess - batch['y'].cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = 0.0
    for batch in loader:
        total += (model(batch['x'].cuda()) - batch['y'].cuda()).abs().sum().item()
    return total / len(loader.dataset)
