"""The entry script and the local modules that its imports reach, as text: nothing is imported or run."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import FrozenImporter
from pathlib import Path

from dp2ddp.errors import OptionError, SourceError
from dp2ddp.source import helper_module
from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import nodes_in, parse, parse_leniently
from dp2ddp.source.read_source import read_source
from dp2ddp.source.said_places import added_roots, dotted, leading_text

RELATIVE = re.compile(r"\bfrom[\s\\]*\.")
TOPS = (".git", "setup.py", "pyproject.toml", "setup.cfg")  # what stands in a repository's uppermost folder
KNOWN = {"torch"}  # whose functions are known by tables, installed or not


@dataclass(frozen=True)
class LocalModule:
    """A module of the user's own that the entry script imports, itself or through others."""

    name: str
    source: SourceFile
    other_names: tuple[str, ...] = ()  # `utils` beside `pkg.utils`: one file, loaded once under each


@dataclass(frozen=True)
class Project:
    """What is converted together: the entry script, and the local modules it uses."""

    entry: SourceFile
    modules: tuple[LocalModule, ...] = ()
    missing: tuple[str, ...] = ()  # top-level names that are imported, and neither found here nor installed
    unread: tuple[str, ...] = ()  # local modules that are no Python, or no text: one line for each
    entry_module: str = ""  # "package.train", of a script that is started with `python -m package.train`
    entry_names: tuple[str, ...] = ()  # by which modules import the entry script: it runs once more, then
    helpers: SourceFile | None = None  # what stands already where the helpers of a conversion go
    helper_folder: Path | None = None  # where they go, if not beside the entry script
    links: Mapping[Path, Path] = field(default_factory=dict, compare=False)  # of modules that a link leads to
    added: tuple[Path, ...] = ()  # the folders that it adds to sys.path

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all files: the entry script's first."""
        return (self.entry.text, *(each.source.text for each in self.modules))

    @property
    def root(self) -> Path | None:
        """The folder that is first on sys.path: the script's, or the one that its package stands in."""
        return self.root_of(self.entry.path) if self.entry.path else None

    def root_of(self, path: Path) -> Path:
        """The folder that is first on sys.path when the entry script lies at `path`."""
        if not self.entry_module:
            return path.parent
        root = path.resolve().parents[self.entry_module.count(".")]
        return root if path.is_absolute() else Path(os.path.relpath(root))

    @property
    def helper_path(self) -> Path:
        """Where the helpers of a conversion go."""
        return (self.helper_folder or self.root or Path()) / helper_module.FILE

    def written_to(self, path: Path) -> Project:
        """The same project with its helpers where a script at `path` will look for them."""
        folder = self.root_of(path)
        return replace(self, helper_folder=folder, helpers=_read_helpers(folder))


def read_project(path: str | Path, as_module: bool = False) -> Project:
    """Read the script at `path`, and the local modules that its imports reach.

    A module is looked for beside the script, in folders that the script (or a module) adds to sys.path, on
    PYTHONPATH, in the current folder, and in the folders above the script up to the one with .git, setup.py or
    pyproject.toml, which is where a package that was installed for development lies. A script with relative
    imports can only be started with -m, as a module of its package; others may be (`as_module`).
    """
    return project_of(read_source(path), as_module)


def project_of(entry: SourceFile, as_module: bool = False) -> Project:
    """A script and the local modules that its imports reach, found from its path (`read_project`)."""
    if entry.path is None:
        return Project(entry)
    name = entry_module(entry, as_module)
    search = _Search(entry.path, name)
    project = Project(
        entry,
        modules=tuple(search.reachable(entry)),
        missing=tuple(sorted(search.missing)),
        unread=tuple(search.unread),
        entry_module=name,
        entry_names=search.entry_names,
        links=search.links,
        added=tuple(search.added),
    )
    return replace(project, helpers=_read_helpers(project.root))


class Imports:
    """Which local files import which, each read once."""

    def __init__(self) -> None:
        self._direct: dict[Path, set[Path]] = {}

    def reached(self, path: Path) -> set[Path]:
        """The local files that a script imports, itself or through others."""
        reached: set[Path] = set()
        pending = [path.resolve()]
        while pending:
            file = pending.pop()
            if file not in self._direct:
                self._direct[file] = _imported_by(file)
            pending += self._direct[file] - reached
            reached |= self._direct[file]
        return reached


def _imported_by(path: Path) -> set[Path]:
    """The local files that one file imports itself, found from its own place as `read_project` finds them."""
    try:
        source = read_source(path)
    except SourceError:
        return set()
    search = _Search(path, entry_module(source))
    return {file for name in search.imported(source, search.package) if (file := search.find(name))}


def module_file(name: str) -> Path:
    """The file of "package.train", as `python -m` finds it: from the current folder, or on PYTHONPATH."""
    parts = name.split(".")
    if not any(parts):
        raise OptionError(f"-m {name!r}: no name of a module; it takes package.module")
    for folder in (".", *map(os.path.relpath, python_path())):
        base = Path(folder, *parts)
        for path in (base.with_name(base.name + ".py"), base / "__main__.py"):
            if path.is_file():
                return path
    raise SourceError(f"{name}: no module of this name here, nor on PYTHONPATH; -m takes package.module")


def entry_module(entry: SourceFile, as_module: bool = False) -> str:
    """What a script is called that is started with -m, because it is asked for or because it has relative imports."""
    if entry.path is None:
        return ""
    relative = has_relative_imports(entry)
    if not (as_module or relative):
        return ""
    folder = entry.path.resolve().parent  # -m begins in the current folder, or in one on PYTHONPATH
    roots = [each for each in (Path.cwd().resolve(), *python_path()) if folder.is_relative_to(each)]
    package = min((folder.relative_to(each).parts for each in roots), key=len, default=())
    named = as_module and roots and not entry.path.is_absolute() and (package or not relative)
    return ".".join((*(package if named else package_around(entry.path)), entry.path.stem))


def package_around(path: Path) -> tuple[str, ...]:
    """The package that a file is a module of, by the `__init__.py`s beside it and above; at least its folder."""
    folder = path.resolve().parent
    names = [folder.name]
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
        names.append(folder.name)
    return tuple(reversed(names))


def has_relative_imports(source: SourceFile) -> bool:
    """Whether a file says `from .data import ...` outside of `try:`, which fails in a script of no package."""
    tree = parse_leniently(source.text) if RELATIVE.search(source.text) else None
    pending: list[ast.AST] = [tree] if tree else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            return True
        if not isinstance(node, ast.Try):
            pending += ast.iter_child_nodes(node)
    return False


class _Search:
    """Follows imports from file to file."""

    def __init__(self, entry: Path, module: str) -> None:
        """`module`: what the script is called, if it is one of a package."""
        self.absolute = entry.is_absolute()
        self.entry = entry = entry.resolve()
        self.package = tuple(module.split(".")[:-1])
        first = entry.parents[len(self.package)]
        self.roots = [first, *python_path()]  # where Python itself looks before installed packages
        self.added: list[Path] = []
        self.late_roots = tuple(_folders_above(entry))
        self.entry_names: tuple[str, ...] = ()
        self.unfound: list[tuple[str, ...]] = []
        self.unread: list[str] = []
        self.links: dict[Path, Path] = {}
        self._found: dict[tuple[str, ...], Path | None] = {}  # by the roots of now

    def reachable(self, entry: SourceFile) -> Iterator[LocalModule]:
        """Every local module once, with all its names, in the order in which imports reach it."""
        names: dict[Path, list[tuple[str, ...]]] = {self.entry: []}
        sources: dict[Path, SourceFile | None] = {self.entry: None}  # None: there is nothing to be read in it
        queue = self.imported(entry, self.package)
        while queue:
            name = queue.pop(0)
            file = self.find(name)
            if file is None:
                self.unfound.append(name)
            elif name not in names.setdefault(file, []):
                names[file].append(name)
                if file not in sources:
                    sources[file] = self._read(file)
                if source := sources[file]:
                    queue += self.imported(source, name if file.name == "__init__.py" else name[:-1])
        self.entry_names = tuple(".".join(name) for name in names[self.entry])
        for file, source in sources.items():
            if source:
                first, *more = (".".join(name) for name in names[file])
                yield LocalModule(first, source, tuple(more))

    def _read(self, file: Path) -> SourceFile | None:
        """A local module; what is wrong with it is said, though Python will say so too when the script runs."""
        source = None
        try:
            source = read_source(self.shown(file))
            parse(source)
        except SourceError as error:
            self.unread.append(str(error))
        return source

    def shown(self, file: Path) -> Path:
        """A file as the user would type it: from the current folder, unless the script is named from the root."""
        return file if self.absolute else Path(os.path.relpath(file))

    def imported(self, source: SourceFile, package: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The names that a file imports; those that were not found before, once it adds to sys.path."""
        tree = parse_leniently(source.text)
        if tree is None or source.path is None:
            return []
        nodes = nodes_in(tree)
        file = source.path.resolve()
        added = [root for root in added_roots(tree, nodes, file, self.entry) if root not in self.roots]
        again, self.unfound = (self.unfound, []) if added else ([], self.unfound)
        self.roots += added
        self.added += added
        if added:
            self._found.clear()
        imports = (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
        calls = (node for node in nodes if isinstance(node, ast.Call))
        names = [name for node in imports for name in _imported_names(node, package)]
        return [*again, *names, *(name for node in calls for name in self._loaded_by_name(node, package))]

    @property
    def missing(self) -> set[str]:
        """Top-level names that are neither found here nor installed."""
        tops = {name[0] for name in self.unfound if name and name[0] not in sys.stdlib_module_names}
        tops -= KNOWN
        return {top for top in tops if self._home(top) is None and not _is_installed(top)}

    def find(self, name: tuple[str, ...]) -> Path | None:
        """The local file of a module."""
        if name not in self._found:
            self._found[name] = self._look_for(name)
        return self._found[name]

    def _look_for(self, name: tuple[str, ...]) -> Path | None:
        if not name or "*" in name or name[0] in sys.stdlib_module_names and not self._hides(name[0]):
            return None
        home = self._home(name[0])
        place = _file_of(home.joinpath(*name)) if home else None
        if place is None:
            return None
        file = place.resolve()
        if file != place:
            self.links[self.shown(file)] = place
        return file

    def _hides(self, top: str) -> bool:
        """Whether a file beside the script comes before the standard library's of its name: Python has not begun with
        that one."""
        begun = top in sys.builtin_module_names or FrozenImporter.find_spec(top)
        return not begun and _file_of(self.roots[0] / top) is not None

    def _home(self, top: str) -> Path | None:
        """The folder that a top-level name is imported from; None for what is installed, or not found."""
        if home := next((root for root in self.roots if _is_there(root / top)), None):
            return home
        late = next((root for root in self.late_roots if _is_there(root / top)), None)
        return late if late and not _is_installed(top, besides=late) else None

    def _loaded_by_name(self, call: ast.Call, home: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """`import_module("models." + name + "_model")`: any module of that package may be meant."""
        if not dotted(call.func).endswith(("import_module", "__import__")):
            return
        text = leading_text(call.args[0]) if call.args else ""
        package = home if text.startswith(".") else tuple(text.split(".")[:-1])
        file = self.find(package)
        if file and file.name == "__init__.py":
            yield package
            yield from ((*package, path.stem) for path in sorted(file.parent.glob("*.py")) if path != file)


def python_path() -> Iterator[Path]:
    """The folders on PYTHONPATH, but for those that packages are installed in."""
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        folder = Path(entry).resolve()
        if entry and folder.is_dir() and not any(folder.glob("*.dist-info")):
            yield folder


def _folders_above(entry: Path) -> Iterator[Path]:
    """Where a package may lie that was installed for development: the current folder, those above the script, and
    the folder `src` of each."""
    current = Path.cwd().resolve()
    if entry.is_relative_to(current):
        yield current
    top = repository_of(entry)
    above = [folder for folder in entry.parents if folder.is_relative_to(top)]
    yield from above[1:]
    yield from (folder / "src" for folder in above if (folder / "src").is_dir())


def repository_of(entry: Path) -> Path:
    """The repository's folder, or the script's own."""
    marked = (parent for parent in entry.parents if any((parent / mark).exists() for mark in TOPS))
    return next(marked, entry.parent)


def _is_there(place: Path) -> bool:
    """Whether a module or a package stands there; a folder with Python files in it is a package, too."""
    is_module = place.with_name(f"{place.name}.py").is_file()
    return is_module or any(next(place.glob(each), None) for each in ("*.py", "*/*.py"))


def _file_of(base: Path) -> Path | None:
    """As Python looks: a package comes before a module of its name."""
    return next(filter(Path.is_file, (base / "__init__.py", base.with_name(f"{base.name}.py"))), None)


def _read_helpers(folder: Path | None) -> SourceFile | None:
    """The module that an earlier conversion has put there, or one of the user's own that has its name."""
    if folder is None:
        return None
    file = _file_of(folder / helper_module.NAME)
    return read_source(file) if file else None


def _is_installed(name: str, besides: Path | None = None) -> bool:
    """Whether Python would find it among installed packages (`besides` those in a folder); nothing of it is run."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    real = [Path(place) for place in places if place and os.path.isabs(place)]
    return bool(real) and not (besides and any(place.is_relative_to(besides) for place in real))


def _imported_names(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names a statement may load: of `from a.b import c` that is a, a.b and perhaps a.b.c."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _with_parents(tuple(alias.name.split(".")))
    else:
        base = package[: len(package) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        yield from _with_parents(base)
        for alias in node.names:
            yield (*base, alias.name)


def _with_parents(name: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for length in range(1, len(name) + 1):
        yield name[:length]
