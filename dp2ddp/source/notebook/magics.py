"""Lines that IPython understands and Python does not: what each means in a script.

Three answers: it is set aside (it shows, times or installs something), Python does the same (`%env A=1`), or it
stands in the way, because what follows depends on it and nobody here can do it. Unknown magics stand in the way.
See IPython/core/magics for what each does.
"""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Collection
from dataclasses import dataclass

from dp2ddp.source.parsing import parse_leniently


@dataclass(frozen=True)
class Meaning:
    """What becomes of such a line."""

    because: str
    code: str | None = None  # Python that does the same; None: the line is set aside
    advice: str = ""  # not empty: the line stands in the way, and this is what to do


SHOWS = Meaning("it shows something to who sits before the notebook")
SETS_UP = Meaning("it sets up the notebook")
INSTALLS = Meaning("install what it installs before the training starts")
MEASURES = Meaning("it runs a statement as often as the time allows, to measure it")
FORGETS = Meaning("it tidies up names, which a script need not do")
NO_EFFECT = Meaning("it has no effect on what follows")


def _of(text: str) -> frozenset[str]:
    return frozenset(text.split())


LINES = {
    **dict.fromkeys(
        _of(
            "matplotlib load_ext reload_ext unload_ext autoreload config colors xmode autosave autocall automagic gui "
            "pprint precision doctest_mode alias_magic alias unalias rehashx aimport tensorflow_version wandb logstart "
            "logstop logon logoff logstate pdb debug load loadpy notebook flake8_on flake8_off pycodestyle_on "
            "pycodestyle_off nb_black lab_black nb_mypy"
        ),
        SETS_UP,
    ),
    **dict.fromkeys(
        _of(
            "who whos who_ls pwd ls ll cat more less man lsmagic magic history hist recall pinfo pinfo2 pdoc pdef "
            "psource pfile pycat page quickref psearch tb tensorboard watermark dhist head tail"
        ),
        SHOWS,
    ),
    **dict.fromkeys(_of("pip pip3 conda mamba micromamba uv"), INSTALLS),
    **dict.fromkeys(_of("timeit memit"), MEASURES),
    **dict.fromkeys(_of("reset reset_selective xdel"), FORGETS),
}
SHELL_ALIASES = _of("mkdir rmdir rm cp mv ln sx system")
KEEPS_STATEMENT = _of("time prun")

CELLS_SHOWN = _of("html HTML javascript js latex markdown svg SVG mermaid")
CELLS_KEPT = _of("time prun capture wandb notify snakeviz memit mprun scalene")
SHELLS = {"bash": "bash", "sh": "sh", "zsh": "zsh", "shell": "sh", "system": "sh", "sx": "sh", "!": "sh"}
OTHER_PROGRAMS = _of("python python2 python3 pypy perl ruby script cmd R sql cython cu")
AUTOMAGIC = re.compile(
    r"%?\b(pip3?|conda|mamba|cd|ls|ll|pwd|cat|mkdir|rmdir|rm|cp|mv|who|whos)\b(?:$|\s+(?![=+*/%&|^@]))"
)

INSTALLERS = _of("pip pip3 conda mamba micromamba apt apt-get brew yum npm uv poetry")
LOOKERS = _of(
    "nvidia-smi nvidia-debugdump ls ll pwd cat head tail less which whereis type du df free lscpu lspci lsb_release "
    "uname whoami hostname date ps top htop tree wc echo grep file stat nproc printenv gpustat tensorboard neofetch"
)
NOWHERE = _of("cd export")
GIT_LOOKS = _of("log status diff branch show rev-parse remote --version")
_PARTS = re.compile(r"&&|\|\||[;|\n]")
_WRITES = re.compile(r">(?!\s*/dev/null|\s*&\d)")
_VARIABLE = re.compile(r"\$(\w+)")


def line_magic(name: str, rest: str, known: Collection[str]) -> Meaning:
    """`%name rest`; `known` are the words that the code of the notebook has."""
    if name in KEEPS_STATEMENT:
        return _statement(name, rest)
    if name in ("env", "set_env"):
        return _environment(name, rest, known)
    if name == "cd":
        return _folder(rest, known)
    if name in SHELL_ALIASES:
        return shell(rest if name in ("sx", "system") else f"{name} {rest}", known)
    return LINES.get(name) or _in_the_way(name)


def _statement(name: str, rest: str) -> Meaning:
    if not rest or rest.startswith("-") or parse_leniently(rest) is None:
        return Meaning("cannot be told from its options", advice="write the statement without the magic")
    return Meaning(f"the statement runs, without %{name}", rest)


def _environment(name: str, rest: str, known: Collection[str]) -> Meaning:
    if not rest or (name == "env" and re.fullmatch(r"\w+|\$\w+", rest)):
        return SHOWS
    key, _, value = (part.strip() for part in rest.partition("=" if "=" in rest else " "))
    return Meaning("set in each process", f"os.environ[{quoted(key)}] = {expanded(value, known)}")


def _folder(rest: str, known: Collection[str]) -> Meaning:
    where = re.sub(r"^-q\s+", "", rest).strip().strip("\"'") or "~"
    if where.startswith("-"):
        return Meaning("depends on where the notebook was before", advice="name the folder")
    folder = expanded(where, known)
    if where.startswith("~"):
        folder = f"os.path.expanduser({folder})"
    # IPython looks for modules in the folder that it is in
    return Meaning(
        "each process goes there", f"sys.path.insert(0, os.path.abspath({folder})); os.chdir({folder})"
    )


def _in_the_way(name: str) -> Meaning:
    if name == "run":
        advice = "import that file as a module (from NAME import *), or paste its code into a cell"
        return Meaning("runs another file in this notebook", advice=advice)
    return Meaning("is a magic that is not known here", advice="take it out, or write in Python what it does")


def shell(command: str, known: Collection[str]) -> Meaning:
    """`!command`: what only shows or installs is set aside; what changes something runs where it stands."""
    parts = [(part, words) for part in _PARTS.split(command.strip()) if (words := _words(part))]
    changing = [words for part, words in parts if not _installs(words) and _WRITES.search(part)]
    if changing or not all(_looks(words) for _, words in parts):
        return Meaning("it runs where it stands", f"os.system({expanded(command.strip(), known)})")
    if all(words[0] in NOWHERE for _, words in parts):
        return NO_EFFECT  # they change a shell that is gone afterwards
    return INSTALLS if any(_installs(words) for _, words in parts) else SHOWS


def _words(part: str) -> list[str]:
    """The words of one command, from its name on."""
    words = part.replace("(", " ").replace(")", " ").split()
    while words and (words[0] in ("sudo", "time", "yes", "&") or re.match(r"\w+=", words[0])):
        words = words[1:]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _looks(words: list[str]) -> bool:
    if _installs(words) or words[0] in LOOKERS | NOWHERE:
        return True
    return words[1:2] in (["--version"], ["-V"]) or words[0] == "git" and bool(GIT_LOOKS & set(words[1:2]))


def _installs(words: list[str]) -> bool:
    if words[0] in INSTALLERS:
        return True
    return bool(re.fullmatch(r"(\{sys\.executable\}|python[\d.]*)", words[0])) and words[1:3] == ["-m", "pip"]


def assigned(target: str, magic: str, known: Collection[str]) -> Meaning:
    """`target = !command`, `target = %magic`: what follows may read it."""
    name, _, rest = magic[1:].partition(" ")
    if magic.startswith("!"):
        command = expanded(magic.lstrip("!").strip(), known)
        return Meaning("the output, line by line", f"{target} = subprocess.getoutput({command}).splitlines()")
    if name == "time" and parse_leniently(rest) is not None:
        return Meaning("the statement runs, without %time", f"{target} = {rest.strip()}")
    if name == "pwd":
        return Meaning("the folder that the script is in", f"{target} = os.getcwd()")
    if name == "env" and re.fullmatch(r"\w+", rest.strip()):
        return Meaning("from the environment", f"{target} = os.environ[{quoted(rest.strip())}]")
    return Meaning("needs what the magic returns", advice="write in Python what it does")


def cell_magic(name: str, rest: str, body: str, used: Collection[str]) -> tuple[Meaning, bool]:
    """`%%name rest` above a body: what it means, and whether the body stays; `used` are words of other cells."""
    if name in CELLS_KEPT:
        kept = rest.strip() if name == "capture" and not rest.strip().startswith("-") else ""
        if kept in used:
            return Meaning(f"keeps in `{kept}` what the cell prints", advice="take the magic out"), True
        return Meaning("the cell runs as it is"), True
    if name in CELLS_SHOWN:
        return SHOWS, False
    if name == "timeit":
        return MEASURES, False
    if name in SHELLS and not rest.strip():
        meaning = shell(body, ())
        if meaning.code:
            code = f"subprocess.run([{quoted(SHELLS[name])}, {quoted('-c')}, {quoted(body)}], check=True)"
            return Meaning(meaning.because, code), False
        return meaning, False
    known_one = name in (*SHELLS, *OTHER_PROGRAMS)
    reason = "is run by another program" if known_one else "is a magic that is not known here"
    return Meaning(reason, advice="write in Python what the cell does, or take it out"), False


def quoted(text: str) -> str:
    """A Python literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def expanded(text: str, known: Collection[str]) -> str:
    """IPython puts variables of Python into `!cp {name} $folder`; a literal, or one with `.format(...)`."""
    with_braces = _VARIABLE.sub(lambda match: f"{{{match[1]}}}" if match[1] in known else match[0], text)
    try:
        pieces = list(string.Formatter().parse(with_braces))
    except ValueError:
        return quoted(text)
    values = [field for _, field, _, _ in pieces if field is not None]
    if not values or any(parse_leniently(f"({value})") is None for value in values):
        return quoted(text.replace("$$", "$"))
    template = "".join(_slot(*piece) for piece in pieces)
    return f"{quoted(template)}.format({', '.join(values)})"


def _slot(literal: str, field: str | None, spec: str | None, conversion: str | None) -> str:
    text = literal.replace("{", "{{").replace("}", "}}")
    if field is None:
        return text
    return text + "{" + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
