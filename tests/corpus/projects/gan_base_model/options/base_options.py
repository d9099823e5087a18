import argparse
import os

import torch


class BaseOptions():
    def initialize(self, parser):
        parser.add_argument('--name', type=str, default='experiment')
        parser.add_argument('--model', type=str, default='cycle')
        parser.add_argument('--gpu_ids', type=str, default='0')
        parser.add_argument('--batchSize', type=int, default=6)
        parser.add_argument('--checkpoints_dir', type=str, default='./checkpoints')
        return parser

    def parse(self):
        parser = self.initialize(argparse.ArgumentParser())
        opt = parser.parse_args()
        opt.isTrain = self.isTrain
        opt.gpu_ids = [int(one) for one in opt.gpu_ids.split(',') if int(one) >= 0]
        if len(opt.gpu_ids) > 0:
            torch.cuda.set_device(opt.gpu_ids[0])
        self.print_options(opt)
        return opt

    def print_options(self, opt):
        message = '\n'.join('{:>20}: {}'.format(k, v) for k, v in sorted(vars(opt).items()))
        print(message)
        expr_dir = os.path.join(opt.checkpoints_dir, opt.name)
        if not os.path.exists(expr_dir):
            os.makedirs(expr_dir)
        with open(os.path.join(expr_dir, 'opt.txt'), 'wt') as opt_file:
            opt_file.write(message + '\n')
