"""What a rank may leave out: expressions that only look, so that the other ranks need not come by."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.computing import METHODS, computes
from dp2ddp.codemod.facts.draws import draws
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.tables import of

LOOKS = {  # functions that only look
    *of("builtins", "print open id hash vars dir round chr ord bytes repr"),
    *of("os", "getcwd listdir getpid stat environ.get getenv makedirs"),
    *of("time", "time perf_counter strftime localtime ctime asctime gmtime"),
    *of("datetime", "datetime.now timedelta datetime.strptime"),
    *of("copy", "copy deepcopy"),
    *of("json", "dumps dump"),
    *of("pickle", "dump dumps"),
    *of("csv", "writer DictWriter"),
    *of("torch", "save get_num_threads is_tensor numel"),
    *of("torch.cuda", "memory_allocated max_memory_allocated get_device_name device_count current_device"),
    *of("torchvision.utils", "make_grid save_image"),
    *of("sys", "exc_info getsizeof"),
    *of("yaml", "dump safe_dump"),
}
LOOKING_LIBRARIES = (
    "os.path.",
    "math.",
    "pathlib.",
    "string.",
    "datetime.",
    "matplotlib.",
    "PIL.",
    "shutil.",
    "pprint.",
)
LOOKING_METHODS = {method.strip(".") for method in METHODS} | {
    *(
        "state_dict",
        "parameters",
        "named_parameters",
        "get_last_lr",
        "get_lr",
        "numpy",
        "elapsed",
        "total_seconds",
    ),
    *(
        "strftime",
        "isoformat",
        "splitlines",
        "rstrip",
        "lstrip",
        "ljust",
        "rjust",
        "center",
        "zfill",
        "title",
    ),
    *("write", "writelines", "flush", "close", "writerow", "writeheader", "writerows", "tell", "buffers"),
    *("info", "debug", "warning", "error", "critical", "log", "exception", "total", "astimezone", "as_posix"),
    *(
        "append",
        "extend",
        "split",
        "encode",
        "decode",
        "capitalize",
        "cpu",
        "data_ptr",
        "__len__",
        "extra_repr",
    ),
    *(
        "add_scalar",
        "add_scalars",
        "add_text",
        "add_image",
        "add_images",
        "add_histogram",
        "add_figure",
        "add_hparams",
    ),
    *(
        "set_postfix",
        "set_description",
        "set_postfix_str",
        "update",
        "savefig",
        "plot",
        "imshow",
        "isdigit",
        "mkdir",
    ),
    *(
        "astype",
        "tobytes",
        "tostring",
        "toarray",
        "keys",
        "values",
        "items",
        "name",
        "stem",
        "nonzero",
        "round",
    ),
    *(
        "exists",
        "is_dir",
        "is_file",
        "joinpath",
        "with_suffix",
        "synchronize",
        "compute",
        "avg",
        "most_common",
    ),
}
DEEPEST = 6


class Harmless:
    """Whether the other ranks may leave an expression out."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.forwards = {id(forward) for forward in facts.training.forwards}
        self.functions: dict[ast.AST, bool] = {}

    def is_harmless(self, script: Script, node: ast.AST, depth: int = 0) -> bool:
        """Nothing in it runs the wrapped model, draws, or changes anything but what it writes or shows."""
        return not any(True for _ in self.harms(script, node, depth))

    def harms(self, script: Script, node: ast.AST, depth: int = 0) -> Iterator[ast.AST]:
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
                yield inner
            if isinstance(inner, ast.Call) and not self._is_harmless_call(script, inner, depth):
                yield inner

    def _is_harmless_call(self, script: Script, call: ast.Call, depth: int) -> bool:
        name = script.scopes.name(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if id(call) in self.forwards or draws(name, method) or name == "torch.autograd.backward":
            return False
        callees = list(self.facts.modules.graph.means(script, call.func)) if depth < DEEPEST else []
        if callees:
            return all(self._is_harmless_function(*callee, depth) for callee in callees)
        if self.facts.modules.definition(script, call.func) is not None:
            return False  # a class of the project
        if name:
            return name in LOOKS or computes(name) or name.startswith(LOOKING_LIBRARIES) or _logs(name)
        return method in LOOKING_METHODS

    def _is_harmless_function(self, script: Script, function: ast.AST, depth: int) -> bool:
        if function not in self.functions:
            self.functions[function] = True  # functions that call each other
            self.functions[function] = self._only_looks(script, function, depth)
        return self.functions[function]

    def _only_looks(self, script: Script, function: ast.AST, depth: int) -> bool:
        if not isinstance(function, Function):
            return self.is_harmless(script, function, depth + 1)
        for node in ast.walk(function):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                return False
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                return False
        return all(self.is_harmless(script, statement, depth + 1) for statement in function.body)


def _logs(name: str) -> bool:
    return name.startswith(("logging.", "tqdm.tqdm.write", "sys.stdout.", "sys.stderr.", "wandb.", "loguru."))
