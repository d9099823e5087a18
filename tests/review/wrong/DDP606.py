# Every rank starts a run of the tracker of its own. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
import wandb
wandb.init(project='x')
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
from torch.utils.tensorboard import SummaryWriter
def main():
    writer = SummaryWriter(log_dir='runs/a')
main()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
import mlflow
mlflow.start_run()
# ---
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
from tensorboardX import SummaryWriter
class Log:
    def __init__(self):
        self.writer = SummaryWriter()
log = Log()
