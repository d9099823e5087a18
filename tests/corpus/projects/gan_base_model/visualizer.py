import os


class Visualizer():
    def __init__(self, opt):
        self.log_name = os.path.join(opt.checkpoints_dir, opt.name, 'loss_log.txt')
        with open(self.log_name, 'a') as log_file:
            log_file.write('================ Training Loss ================\n')

    def print_current_losses(self, epoch, i, losses):
        message = '(epoch: %d, iters: %d) ' % (epoch, i)
        for k, v in losses.items():
            message += '%s: %.4f ' % (k, v)
        print(message)
        with open(self.log_name, 'a') as log_file:
            log_file.write('%s\n' % message)
