from concurrent.futures import ThreadPoolExecutor as Pool
from functools import partial
import torch
net = torch.nn.DataParallel(net)
seen = []
class Item:
    def double(self):
        self.x *= 2
def other(row):
    row.append(1)
def load(row, *more):
    return row
with Pool(2) as pool:
    found = list(pool.map(load, rows))
