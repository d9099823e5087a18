import torch
from utils.dist import reduce_tensor


def train_one_epoch(model, loader, criterion, optimizer, epoch):
    model.train()
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(epoch, step, reduce_tensor(loss.detach()).item())


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right, seen = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    for images, labels in loader:
        right += (model(images.cuda()).argmax(1) == labels.cuda()).sum()
        seen += len(labels)
    return (reduce_tensor(right, 1) / reduce_tensor(seen, 1)).item()
