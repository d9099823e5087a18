from common.cli import parse_args
from common.data import build_loaders
from common.model import create_model, load_model
from common.steps import evaluate

args = parse_args()
model = create_model(args)
load_model(model, args.ckpt)
print('test error %.4f' % evaluate(model, build_loaders(args)['val']))
