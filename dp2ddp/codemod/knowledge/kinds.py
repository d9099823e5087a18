"""What a row of the table says of a function."""

from dataclasses import dataclass
from enum import Enum, auto


class Does(Enum):
    """What a call does that processes cannot each do by themselves."""

    WRITE = auto()  # files or folders; what it returns is seldom of use
    SAVE = auto()  # torch.save
    OPEN = auto()  # a file, to write where the mode says so
    INTO_FILE = auto()  # writes into what is open already, or into memory: nothing to do
    ANSWER = auto()  # from the outside: what it returns differs from call to call
    DIFFER = auto()  # what it returns differs from process to process
    DOWNLOAD = auto()  # unless the file is there
    TRACK = auto()  # makes an object that writes, of which nothing is read
    HANDLE_LOG = auto()  # makes a logging handler that writes a file
    FOLDER = auto()  # makes a temporary folder that goes with the object
    CLOCK = auto()  # seconds
    CALENDAR = auto()  # the time of day, unless one is given
    SEED = auto()  # all of torch's streams
    SEED_BY_SYSTEM = auto()  # a stream of the process, from the operating system where no seed is given
    MAKE_STREAM = auto()  # a generator, seeded by the operating system where no seed is given
    DRAW = auto()  # from a stream that a script can seed
    DRAW_BY_SYSTEM = auto()  # makes a generator that nobody can seed
    LOAD_BATCHES = auto()
    WRAP = auto()  # DataParallel, and its parts as functions
    DISTRIBUTE = auto()  # sets up a distributed mode of the script's own
    HAND_OVER = auto()  # threads and processes that hand over in an order of their own; processes that end
    KEEP_STORE = auto()  # opens a store that one process alone may write
    START_PROGRAM = auto()  # and goes on while it runs
    START_TRAINING = auto()  # calls the script, not the script it
    ASK_PERSON = auto()  # waits for one
    COPY_BY_HAND = auto()  # between devices
    COUNT_DEVICES = auto()
    SET_DEVICE = auto()
    MAKE_DEVICE = auto()
    DEVICE_STATES = auto()
    HANDLE_SIGNAL = auto()
    NAME_BY_CLOCK = auto()  # hydra's folders


@dataclass(frozen=True)
class FunctionRow:
    """What one function does.

    `position` and `keyword` are those of the argument that decides (a mode, a seed, a time), `usual` is what is taken
    where it is not given. Where it says `harmless`, a regular expression, nothing is to be done. `changed_by` is what
    the program says somewhere if a store is written, whatever the mode allows.
    """

    does: Does
    position: int | None = None
    keyword: str | None = None
    usual: str = ""
    harmless: str = ""
    changed_by: str = ""
