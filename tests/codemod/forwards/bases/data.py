import os, torch, torch.nn as nn
class Data:
    def __init__(self):
        self.words, self.asked = ["a", "b"], []
    def __getitem__(self, i):
        self.asked.append(i)
        return self.words[i]
    @property
    def count(self):
        return len(self.words) + 1
    @property
    def all(self):
        return self.words
    def how_many(self):
        return len(self.words)
    def longest(self):
        return max(self.words)
class Net(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.given = given
    def forward(self, x):
        return x
def options():
    parser.add_argument("--lr")
    os.makedirs("out")
    return parser.parse_args()
loader = torch.utils.data.DataLoader(Data())
net = nn.DataParallel(Net(1))
