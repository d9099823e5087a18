"""A textbook ImageNet script: what its conversion needs of helpers is a figure (benchmarks/helper_lines.py)."""

import argparse

import torch
import torchvision
from torchvision import transforms

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)
train_set = torchvision.datasets.ImageFolder(args.data, augment)
loader = torch.utils.data.DataLoader(
    train_set, args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True
)
model = torch.nn.DataParallel(torchvision.models.resnet50()).cuda()
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)

for epoch in range(args.epochs):
    for images, targets in loader:
        images, targets = images.cuda(non_blocking=True), targets.cuda(non_blocking=True)
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pth")
