import argparse


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seed', type=int, default=2)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--epochs', type=int, default=1)
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--multi-gpu', action='store_true')
    parser.add_argument('--ckpt', default='ckpt/model.pt')
    return parser.parse_args()
