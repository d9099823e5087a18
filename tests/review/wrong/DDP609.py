# One rank alone runs the wrapped model, and waits for the others. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
if dist.get_rank() == 0:
    out = model(x)
# ---
# wrapped
from torchvision.models import resnet18
@torch.no_grad()
def test(m):
    return m(x)
if local_rank == 0:
    test(model)
# ---
class T:
    def __init__(self, net, rank):
        self.rank = rank
        self.model = DDP(net)
    def sample(self):
        if self.rank == 0:
            return self.model(self.x)
# ---
class T:
    def __init__(self, net, rank):
        self.rank = rank
        self.model = DDP(net)
    def test(self):
        return self.model(self.x)
    def fit(self):
        if self.rank == 0:
            self.test()
# ---
class Trainer:
    def __init__(self, model):
        self.me = dist.get_rank()
        self.model = DDP(model.cuda())
    def train(self):
        for epoch in range(10):
            loss = self.model(x)
            loss.backward()
            if not self.me:
                self.model(y).backward()
Trainer(net).train()
