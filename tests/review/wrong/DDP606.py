# Every rank starts a run of the tracker of its own. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
import wandb
wandb.init(project='x')
# ---
# wrapped
from torch.utils.tensorboard import SummaryWriter
def main():
    writer = SummaryWriter(log_dir='runs/a')
main()
# ---
# wrapped
import mlflow
mlflow.start_run()
# ---
# wrapped
from tensorboardX import SummaryWriter
class Log:
    def __init__(self):
        self.writer = SummaryWriter()
log = Log()
