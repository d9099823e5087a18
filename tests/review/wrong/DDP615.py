# The wrapper has no such attribute: only the model inside has. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
features = model.extract(x)
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
print(model.num_classes)
# ---
class T:
    def __init__(self, net):
        self.net = DDP(net)
    def kept(self):
        return self.net.classifier.weight
