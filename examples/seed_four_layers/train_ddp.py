import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from ddp_helpers import WholeBatchParallel, init_distributed

input_size = 10
hidden_size = 20
output_size = 5
num_layers = 2
batch_size = 32
data_size = 1000


class SimpleDataset(Dataset):
    def __init__(self, size):
        self.data = torch.randn(size, input_size)
        self.labels = torch.randint(0, 1, (size, output_size))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return self.data[idx], self.labels[idx]


init_distributed()

random_loader = DataLoader(SimpleDataset(data_size), batch_size=batch_size, shuffle=True)

for batch in random_loader:
    data, labels = batch
    print(f"Data shape: {data.shape}, Labels shape: {labels.shape}")
    break


class Model(nn.Module):
    def __init__(self, input_size, hidden_size, output_size, num_layers):
        super(Model, self).__init__()
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.fc2 = nn.Linear(hidden_size, hidden_size)
        self.fc3 = nn.Linear(hidden_size, hidden_size)
        self.fc4 = nn.Linear(hidden_size, output_size)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        x = torch.relu(self.fc3(x))
        x = self.fc4(x)
        return x


model = Model(input_size, hidden_size, output_size, num_layers)

# device_ids = None: which GPUs take part; output_device = None: which GPU gets the result
model = WholeBatchParallel(model)
model.to('cuda')

for data in random_loader:
    inputs, labels = data
    input = inputs.to('cuda')
    output = model(input)
    print("Outside: input size", input.size(),
          "output_size", output.size())
    break
