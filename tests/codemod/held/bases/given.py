import queue, threading
import torch
net = torch.nn.DataParallel(Net())
def add(number, rows):
    rows.append(number)
class Box:
    def __init__(self, rows):
        rows.append(1)
class Memory:
    def __init__(self):
        self.rows = []
    def push(self, row):
        self.rows.append(row)
    def put(self, row):
        self.rows.append(row)
def work(given):
    pass
threading.Thread(target=work, args=(found,)).start()
