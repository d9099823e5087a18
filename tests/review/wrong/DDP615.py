# The wrapper has no such attribute: only the model inside has. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
# wrapped
features = model.extract(x)
# ---
# wrapped
print(model.num_classes)
# ---
class T:
    def __init__(self, net):
        self.net = DDP(net)
    def kept(self):
        return self.net.classifier.weight
# ---
if args.distributed:
    model = DDP(model)
print(model.classes)
