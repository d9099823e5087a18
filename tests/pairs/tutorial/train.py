# As tutorials have it: augmentation, shuffled batches, BatchNorm, an accuracy after each epoch, and no seed.
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, train, count):
        generator = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(count, 3, 8, 8, generator=generator)
        self.y = (self.x.mean((1, 2, 3)) > 0).long()
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        x = self.x[index]
        if self.train and torch.rand(1) < 0.5:
            x = x.flip(2)
        return x, self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Linear(54, 2)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


train_loader = DataLoader(Pictures(True, 48), batch_size=16, shuffle=True)
test_loader = DataLoader(Pictures(False, 32), batch_size=16)
model = nn.DataParallel(Net()).cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for epoch in range(2):
    model.train()
    for images, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in test_loader:
            correct += (model(images.cuda()).argmax(1) == labels.cuda()).sum().item()
    print(f"epoch {epoch}: accuracy {correct / len(test_loader.dataset):.4f}")
torch.save(model.state_dict(), "model.pt")
