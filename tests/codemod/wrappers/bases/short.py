import torch
net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
