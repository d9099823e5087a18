# corpus: idioms = train loop / backward in: same scope (relative to the wrap); DataLoader built in: same scope (relative to the wrap)
# corpus: idioms = torch.nn.DataParallel; notebook cell; rebinds the same name; device_ids literal/comprehension list; 'cuda:0' literal; unconditional; shuffle literal True; correct/total counters; .to(device)
# corpus: idioms = bestStateDict alias taken without copy; computed inside the wrapped forward, gathered, then .mean(); torch.save; torch.manual_seed
#!/usr/bin/env python
# coding: utf-8

# # Multi GPU in a notebook

# In[1]:


import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


# In[2]:


torch.manual_seed(123)
device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
batch_size = 12
num_epochs = 3


# In[3]:


class RandomDataset(Dataset):
    def __init__(self, size, length):
        self.len = length
        self.data = torch.randn(length, size)

    def __getitem__(self, index):
        return self.data[index], (self.data[index].sum() > 0).float()

    def __len__(self):
        return self.len


loader = DataLoader(dataset=RandomDataset(5, 50), batch_size=batch_size, shuffle=True)


# In[4]:


class Model(nn.Module):
    def __init__(self, input_size):
        super(Model, self).__init__()
        self.fc = nn.Linear(input_size, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x, y):
        score = self.out(torch.tanh(self.fc(x))).squeeze(1)
        print("\tIn Model: input size", tuple(x.size())) if x.size(0) == 0 else None
        return nn.functional.binary_cross_entropy_with_logits(score, y, reduction='none'), score


model = Model(5)
model = torch.nn.DataParallel(model, device_ids=[0, 1])
model.to(device)


# In[5]:


optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
best, best_state = 1e9, None
start_time = time.time()
for epoch in range(num_epochs):
    correct, total, sum_loss = 0, 0, 0.0
    for features, targets in loader:
        features, targets = features.to(device), targets.to(device)
        losses, scores = model(features, targets)
        cost = losses.mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        sum_loss += losses.sum().item()
        correct += ((scores > 0).float() == targets).sum().item()
        total += len(targets)
    if sum_loss < best:
        best, best_state = sum_loss, model.state_dict()
    print('Epoch: %03d/%03d | Cost: %.4f | Acc %.3f%%' % (epoch + 1, num_epochs, sum_loss / total, correct / total * 100))
print('Time elapsed: %.2f min' % ((time.time() - start_time) / 60))


# In[6]:


torch.save(best_state, 'notebook.pt')
get_ipython = None
