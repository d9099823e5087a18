"""What writes and reads: calls of which rank 0's alone may be seen outside. The exact style's rules find them."""

import ast
from functools import lru_cache

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.idiomatic.looking import is_true, leading_to
from dp2ddp.codemod.knowledge.methods import WRITING_MODE
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rules.ddp301_download import Download
from dp2ddp.codemod.rules.ddp501_file_open import FileOpen
from dp2ddp.codemod.rules.ddp502_torch_save import TorchSave
from dp2ddp.codemod.rules.ddp503_file_system import FileSystem
from dp2ddp.codemod.rules.ddp504_tracker import Tracker

RULES = (Tracker(), FileSystem(), TorchSave(), FileOpen(), Download())
# Helpers of the exact style, by what it calls by them.
DOWNLOADS = ("rank0_first",)
OPENS = ("open_on_rank0", "open_by_on_rank0", "open_path_on_rank0")
WRITES = ("run_on_rank0", "write_on_rank0", "save_on_rank0", "ask_rank0", "hold_on_rank0")
MAKES = ("make_on_rank0", "make_handler_on_rank0")
READERS = (
    *("os.listdir", "os.walk", "os.scandir", "glob.glob", "numpy.load", "torch.load", "pandas.read_csv"),
    *("subprocess.check_output", "subprocess.getoutput", "os.popen"),
)
IN_MEMORY = ("io.BytesIO", "io.StringIO")
READING_METHODS = ("read_text", "read_bytes", "iterdir")


@lru_cache(maxsize=1000)
def findings(module: Module) -> tuple[Finding, ...]:
    """What the exact style does about the outside."""
    return tuple(finding for rule in RULES for finding in rule.look(module))


@lru_cache(maxsize=1000)
def effects(module: Module) -> dict[ast.AST, str]:
    """The calls that act outside, each with the helper that the exact style calls there; "" where a person decides."""
    acting: dict[ast.AST, str] = {}
    for finding in findings(module):
        node, parent = finding.node, module.parents.get(finding.node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else node
        helper = next(iter(getattr(finding, "helpers", ())), "")
        is_known = helper in (*DOWNLOADS, *OPENS, *WRITES, *MAKES) or isinstance(finding, Hazard)
        if isinstance(call, ast.Call) and is_known and not _stays_inside(module, call):
            acting[call] = helper
    return acting


def _stays_inside(module: Module, node: ast.Call) -> bool:
    """Whether a call only reads, or writes into memory: `image.save(buffer)`."""
    calls = (each for each in (node, *ast.walk(node.func)) if isinstance(each, ast.Call))
    origins = (each for given in node.args for each in module.program.flow.origins(module, given))
    made = {home.name(each.func) for home, each in origins if isinstance(each, ast.Call)}
    return any(reads(Call(each, module.name(each.func))) for each in calls) or not made.isdisjoint(IN_MEMORY)


def mode_of(call: Call) -> str:
    """The mode in which a call opens a file to write, where the text tells it."""
    for given in (*call.node.args, *(each.value for each in call.node.keywords)):
        parts = (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,)
        modes = [str(getattr(each, "value", "")) for each in parts]
        if all(map(WRITING_MODE.fullmatch, modes)):
            return "".join(modes)
    return ""


def reads(call: Call) -> bool:
    """Whether a call reads files or looks for them."""
    asks = call.name == "subprocess.run" and (call.keyword("stdout") or call.keyword("capture_output"))
    is_open = call.name == "builtins.open" and call.argument(1, "mode") is None
    return bool(call.name in READERS or call.method in READING_METHODS or asks or is_open)


def is_folder(call: Call) -> bool:
    """Whether it makes a folder in a way that may find it there."""
    return call.name in ("os.makedirs", "pathlib.Path.mkdir") or call.name is None and call.method == "mkdir"


def is_download(module: Module, call: Call) -> bool:
    """`CIFAR10(root, download=True)`, `torch.hub.load(...)`."""
    given = call.keyword("download")
    return is_true(given.value) if given is not None else effects(module).get(call.node) in DOWNLOADS


@lru_cache(maxsize=8)
def leading_to_writing(program: Program) -> frozenset[ast.AST]:
    """The calls that write, and those that lead to one; not those that make a folder."""
    return leading_to((module, call) for module, call in program.calls if _writes(module, call))


def _writes(module: Module, call: Call) -> bool:
    makes_folder = is_folder(call) or call.name == "os.mkdir"
    acts = effects(module).get(call.node) in (*OPENS, *WRITES)
    return acts and not makes_folder or is_download(module, call)
