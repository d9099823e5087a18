class Table(dict):
    def __call__(self, name):
        def put(cls):
            self[name] = cls
            return cls
        return put


NETS = Table()
