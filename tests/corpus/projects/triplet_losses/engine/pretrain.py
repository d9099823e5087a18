import torch.nn.functional as F


def train(model, loader, optimizer):
    """Identities only."""
    model.train()
    for images, pids in loader:
        score, _ = model(images.cuda())
        loss = F.cross_entropy(score, pids.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('warm-up', round(loss.item(), 4))
