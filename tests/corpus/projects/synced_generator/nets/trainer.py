from nets.model import Pix2PixModel
from nets.sync_batchnorm import DataParallelWithCallback


class Pix2PixTrainer():
    def __init__(self, opt):
        self.pix2pix_model = Pix2PixModel(opt).cuda()
        if len(opt.gpu_ids) > 0:
            self.pix2pix_model = DataParallelWithCallback(self.pix2pix_model, device_ids=opt.gpu_ids)
            self.pix2pix_model_on_one_gpu = self.pix2pix_model.module
        else:
            self.pix2pix_model_on_one_gpu = self.pix2pix_model
        self.optimizer_G, self.optimizer_D = self.pix2pix_model_on_one_gpu.create_optimizers(opt)

    def run_generator_one_step(self, data):
        self.optimizer_G.zero_grad()
        losses, generated = self.pix2pix_model(data, mode='generator')
        sum(losses.values()).mean().backward()
        self.optimizer_G.step()
        self.g_losses, self.generated = losses, generated

    def run_discriminator_one_step(self, data):
        self.optimizer_D.zero_grad()
        losses = self.pix2pix_model(data, mode='discriminator')
        sum(losses.values()).mean().backward()
        self.optimizer_D.step()
        self.d_losses = losses

    def get_latest_losses(self):
        return {**self.g_losses, **self.d_losses}
