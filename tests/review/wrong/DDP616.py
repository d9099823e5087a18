# The model is wrapped where it was made, and moved to its GPU afterwards. Lines of --- part the spellings; HEAD of test_recall.py stands above each.
class Net(nn.Module):
    pass
model = DDP(Net()).cuda()
# ---
class Net(nn.Module):
    pass
model = DDP(Net())
model = model.to('cuda:0')
# ---
class Net(nn.Module):
    pass
def main(rank):
    net = Net()
    model = DDP(net)
    model.cuda(rank)
