# corpus: idioms = parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); several optimizers; optimizer created before wrap; BN frozen or momentum scheduled in the loop; lr_scheduler; model.module access
# corpus: worlds = 2 3
"""Fine-tuning: head first, then layer by layer; the head is replaced after the wrap; frozen BatchNorm stays in eval mode."""
import copy
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(13)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.fc = nn.Linear(16, 1000 // 100)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)))


def set_bn_eval(m):
    if m.__class__.__name__.find('BatchNorm') != -1 and not m.weight.requires_grad:
        m.eval()


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


x = torch.randn(60, 10)
y = (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long()
dataloaders = {'train': DataLoader(TensorDataset(x[:44], y[:44]), batch_size=12, shuffle=True),
               'val': DataLoader(TensorDataset(x[44:], y[44:]), batch_size=6)}
dataset_sizes = {p: len(dataloaders[p].dataset) for p in dataloaders}

model_ft = Backbone().cuda()
set_trainable(model_ft, False)
model_ft = nn.DataParallel(model_ft)
num_ftrs = model_ft.module.fc.in_features
model_ft.module.fc = nn.Linear(num_ftrs, 3).cuda()          # another number of classes
criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(model_ft.module.fc.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=2, gamma=0.5)


def train_model(model, criterion, optimizer, scheduler, num_epochs=5):
    since = time.time()
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    for epoch in range(num_epochs):
        print('Epoch {}/{}'.format(epoch, num_epochs - 1))
        if epoch == 2:
            set_trainable(model.module.layer2, True)
            optimizer.add_param_group({'params': model.module.layer2.parameters(), 'lr': 0.01})
            scheduler = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        if epoch == 4:
            set_trainable(model.module.layer1, True)
            set_trainable(model.module.fc, False)           # and the head rests
            optimizer = optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
            scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
        for phase in ['train', 'val']:
            if phase == 'train':
                model.train()
                model.apply(set_bn_eval)
            else:
                model.eval()
            running_loss, running_corrects = 0.0, 0
            for inputs, labels in dataloaders[phase]:
                inputs = inputs.cuda()
                labels = labels.cuda()
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
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print('{} Loss: {:.6f} Acc: {:.4f} trainable {}'.format(
                phase, running_loss / dataset_sizes[phase], epoch_acc, sum(p.numel() for p in model.parameters() if p.requires_grad)))
            if phase == 'val' and epoch_acc >= best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
    assert time.time() - since >= 0
    print('Best val Acc: {:4f}'.format(best_acc))
    model.load_state_dict(best_model_wts)
    return model


model_ft = train_model(model_ft, criterion, optimizer_ft, exp_lr_scheduler)
torch.save(model_ft.module.state_dict(), 'ft.pth')
