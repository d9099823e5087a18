import argparse
import torch
import torch.backends.cudnn as cudnn
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=0, type=int)
args = parser.parse_args()


def main():
	torch.cuda.set_device(args.gpu)
	model = torch.nn.DataParallel(Net().cuda(args.gpu), [0, 1, 2, 3])
	cudnn.benchmark = True
	for x, y in batches():
		x = Variable(x.cuda(args.gpu, async=True))	# to the GPU
		y = Variable(y.cuda(async=True))
		print(model(x), y)


main()