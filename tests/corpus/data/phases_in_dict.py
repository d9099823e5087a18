# corpus: idioms = dict or list of loaders; len(loader.dataset); random_split/subset; shuffle literal True; download=True; best selection; lr_scheduler; DataLoader built in: same file, other scope (relative to the wrap); torch.load
# corpus: worlds = 2 3
"""Transfer learning as in the tutorial: loaders in a dict by phase, data fetched and cached by the first start."""
import copy
import os
import pickle

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, Subset

torch.manual_seed(12)


class Ants(Dataset):
    """Looks like torchvision's: fetches what is not there, and writes a cache."""
    url = 'memory://hymenoptera'

    def __init__(self, root, train=True, download=False):
        self.file = os.path.join(root, 'train.pkl' if train else 'val.pkl')
        if download:
            self.download(root)
        if not os.path.exists(self.file):
            raise RuntimeError('Dataset not found. You can use download=True to download it')
        with open(self.file, 'rb') as f:
            self.data, self.targets = pickle.load(f)
        self.classes = ['ants', 'bees']

    def download(self, root):
        if os.path.exists(self.file):
            print('Files already downloaded and verified')
            return
        print('Downloading', self.url, 'to', self.file)
        os.makedirs(root, exist_ok=True)
        g = torch.Generator().manual_seed(len(self.file))
        x = torch.randn(40, 3, 5, 5, generator=g)
        with open(self.file, 'wb') as f:
            pickle.dump((x, (x[:, 0].mean((1, 2)) > 0).long()), f)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], self.targets[i]


data_dir = './hymenoptera'
image_datasets = {x: Ants(data_dir, train=(x == 'train'), download=True) for x in ['train', 'val']}
image_datasets['val'] = Subset(image_datasets['val'], range(0, 22))
dataloaders = {x: DataLoader(image_datasets[x], batch_size=9, shuffle=(x == 'train'), num_workers=0)
               for x in ['train', 'val']}
dataset_sizes = {x: len(image_datasets[x]) for x in ['train', 'val']}
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def train_model(model, criterion, optimizer, scheduler, num_epochs=3):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        print('Epoch {}/{}'.format(epoch, num_epochs - 1))
        print('-' * 10)
        for phase in ['train', 'val']:
            if phase == 'train':
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == 'train'):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == 'train':
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == 'train':
                scheduler.step()
            epoch_loss = running_loss / len(dataloaders[phase].dataset)
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print('{} Loss: {:.4f} Acc: {:.4f}'.format(phase, epoch_loss, epoch_acc))
            if phase == 'val' and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
    print('Best val Acc: {:4f}'.format(best_acc))
    model.load_state_dict(best_model_wts)
    return model


backbone = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
model_ft = nn.Sequential(backbone, nn.Linear(6 * 9, 2))
model_ft = nn.DataParallel(model_ft).to(device)
optimizer_ft = optim.SGD(model_ft.parameters(), lr=0.02, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=2, gamma=0.1)
model_ft = train_model(model_ft, nn.CrossEntropyLoss(), optimizer_ft, exp_lr_scheduler)
torch.save(model_ft.state_dict(), 'ants_bees.pt')
