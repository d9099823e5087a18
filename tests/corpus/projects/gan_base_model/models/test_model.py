from .base_model import BaseModel


class TestModel(BaseModel):
    def __init__(self, opt):
        BaseModel.__init__(self, opt)
        self.model_names = ['G_A']
        self.init('G_A', 4)
