import argparse
import torch
import torch.backends.cudnn as cudnn
from torch.autograd import Variable
from dp2ddp.helpers import WholeBatchParallel, init_distributed

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=0, type=int)
args = parser.parse_args()


def main():
	model = WholeBatchParallel(Net().cuda(), [0, 1, 2, 3])
	cudnn.benchmark = True
	for x, y in batches():
		x = Variable(x.cuda(non_blocking=True))	# to the GPU
		y = Variable(y.cuda(non_blocking=True))
		print(model(x), y)


init_distributed()

main()