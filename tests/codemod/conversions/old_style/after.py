import argparse
import torch
import torch.backends.cudnn as cudnn
from torch.autograd import Variable
from dp2ddp.helpers import GraphDDP, join_process_group

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=0, type=int)

join_process_group()

args = parser.parse_args()


def main():
	model = GraphDDP(Net().cuda())
	cudnn.benchmark = True
	for x, y in batches():
		x = Variable(x.cuda(non_blocking=True))	# to the GPU
		y = Variable(y.cuda(non_blocking=True))
		print(model(x), y)


main()