import threading
import torch


class Watcher(threading.Thread):
    def __init__(self, seen, pause):
        super().__init__()
        self.seen, self.pause = seen, pause
        self.found = seen

    def run(self):
        pass


seen = []
Watcher(seen=seen, pause=1).start()
net = torch.nn.DataParallel(net)
