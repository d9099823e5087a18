import collections
import queue
import threading


class FutureResult(object):
    def __init__(self):
        self._result = None
        self._lock = threading.Lock()
        self._cond = threading.Condition(self._lock)

    def put(self, result):
        with self._lock:
            assert self._result is None
            self._result = result
            self._cond.notify()

    def get(self):
        with self._lock:
            if self._result is None:
                self._cond.wait()
            result, self._result = self._result, None
            return result


_Registry = collections.namedtuple('_Registry', ['result'])
_PipeBase = collections.namedtuple('_PipeBase', ['identifier', 'queue', 'result'])


class SlavePipe(_PipeBase):
    def run_slave(self, msg):
        self.queue.put((self.identifier, msg))
        answer = self.result.get()
        self.queue.put(True)
        return answer


class SyncMaster(object):
    def __init__(self, master_callback):
        self._master_callback = master_callback
        self._queue = queue.Queue()
        self._registry = collections.OrderedDict()
        self._activated = False

    def __getstate__(self):
        return {'master_callback': self._master_callback}

    def __setstate__(self, state):
        self.__init__(state['master_callback'])

    def register_slave(self, identifier):
        if self._activated:
            assert self._queue.empty()
            self._activated = False
            self._registry.clear()
        future = FutureResult()
        self._registry[identifier] = _Registry(future)
        return SlavePipe(identifier, self._queue, future)

    def run_master(self, master_msg):
        self._activated = True
        intermediates = [(0, master_msg)]
        for _ in range(self.nr_slaves):
            intermediates.append(self._queue.get())
        results = self._master_callback(intermediates)
        assert results[0][0] == 0
        for i, result in results:
            if i:
                self._registry[i].result.put(result)
        for _ in range(self.nr_slaves):
            assert self._queue.get() is True
        return results[0][1]

    @property
    def nr_slaves(self):
        return len(self._registry)
