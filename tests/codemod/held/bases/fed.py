import queue, threading
import torch
net = torch.nn.DataParallel(Net())
def take(rows, place):
    rows.sort()
    return rows[place]
def feed(rows, batches):
    for place in range(3):
        batches.put(take(rows, place))
def make():
    return [3, 1, 2]
batches = queue.Queue()
threading.Thread(target=feed, args=(make(), batches)).start()
