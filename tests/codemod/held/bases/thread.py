import queue, random, threading
import torch
found, table = [], {}
random.shuffle(found)
net = torch.nn.DataParallel(Net())
batches = queue.Queue(8)
def fill(batches):
    for number in range(3):
        batches.put(number)
threading.Thread(target=fill, args=(batches,)).start()
