# The collective has no result: it works in place, and returns None. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
loss = dist.all_reduce(loss)
print(loss.item())
# ---
mean = dist.all_reduce(x) / dist.get_world_size()
# ---
from torch.distributed import all_gather
def collect(x, parts):
    return torch.cat(all_gather(parts, x))
# ---
def total(x):
    y = dist.reduce(x, 0)
    return y + 1
