# corpus: idioms = train loop / backward in: none in closure (relative to the wrap); DataLoader built in: none in closure (relative to the wrap); torch.nn.DataParallel; prefix handled by hand (strip/replace "module."); torch.load; text/csv/json log file
# corpus: trains = no
"""Captions for a folder of images; DataParallel only makes it faster."""
import argparse
import json
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument('--weights', default='', help='trained ones')
parser.add_argument('--out', default='captions.json')
args = parser.parse_args()


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 20)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3))).topk(5, dim=1)[1]


torch.manual_seed(0)
model = Captioner()
if args.weights:
    state = torch.load(args.weights, map_location='cpu')
    model.load_state_dict({k.replace('module.', ''): v for k, v in state.items()})
model = torch.nn.DataParallel(model).cuda()
model.eval()
captions = {}
with torch.no_grad():
    for i in range(0, 64, 16):
        words = model(torch.randn(16, 3, 8, 8).cuda())
        for j, row in enumerate(words.tolist()):
            captions[i + j] = row
with open(args.out, 'w') as f:
    json.dump(captions, f)
print(len(captions), 'images')
