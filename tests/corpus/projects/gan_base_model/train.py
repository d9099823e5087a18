# corpus: idioms = torch.nn.DataParallel; several models wrapped in one script; returned directly from helper; len(gpu_ids)/num_gpus from config; device_ids from config/args/variable; DataLoader built in: other file (relative to the wrap); train loop / backward in: other file (relative to the wrap)
# corpus: idioms = several optimizers; retain_graph/create_graph/autograd.grad; parameters without gradient on a step (optional heads, toggled requires_grad, unused branches); two or more backward() before one step, or forward twice before backward; text/csv/json log file; __name__ guard
# corpus: idioms = isinstance(model, DataParallel); lr_scheduler; DataLoader subclass or own class called DataLoader; order, crops or lengths drawn from np.random / random in dataset, sampler or loop
# corpus: worlds = 3
# corpus: arguments = --model cycle --gpu_ids 0,1,2 --niter 1
"""Two generators and two discriminators: the model file is found by name, networks.py wraps each."""
import time

from data import CreateDataLoader
from models import create_model
from options.train_options import TrainOptions
from visualizer import Visualizer

if __name__ == '__main__':
    opt = TrainOptions().parse()
    data_loader = CreateDataLoader(opt)
    dataset = data_loader.load_data()
    print('#training images = %d' % len(data_loader))

    model = create_model(opt)
    model.setup(opt)
    visualizer = Visualizer(opt)
    total_steps = 0

    for epoch in range(1, opt.niter + opt.niter_decay + 1):
        epoch_start_time = time.time()
        for i, data in enumerate(dataset):
            total_steps += opt.batchSize
            model.set_input(data)
            model.optimize_parameters()
            if total_steps % opt.print_freq == 0:
                visualizer.print_current_losses(epoch, i, model.get_current_losses())
        model.save_networks('latest')
        model.update_learning_rate()
        print('End of epoch %d / %d' % (epoch, opt.niter + opt.niter_decay))
        assert time.time() >= epoch_start_time
