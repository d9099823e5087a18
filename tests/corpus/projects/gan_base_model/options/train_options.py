from .base_options import BaseOptions


class TrainOptions(BaseOptions):
    isTrain = True

    def initialize(self, parser):
        parser = BaseOptions.initialize(self, parser)
        parser.add_argument('--niter', type=int, default=2)
        parser.add_argument('--niter_decay', type=int, default=1)
        parser.add_argument('--lr', type=float, default=0.002)
        parser.add_argument('--lambda_A', type=float, default=10.0)
        parser.add_argument('--print_freq', type=int, default=6)
        return parser
