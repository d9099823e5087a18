"""The conversion as a command of libcst's own tool, for those who run their codemods with it (docs/api.md).

`python -m libcst.tool codemod -x dp2ddp.codemod.command.ConvertDataParallel PATHS`
"""

import argparse
from pathlib import Path

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from dp2ddp.codemod.conversion import MENTION, Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.codemod.looks.ours import JOINS
from dp2ddp.codemod.plans.planned import Planned
from dp2ddp.errors import ConversionError
from dp2ddp.source.files import SourceFile
from dp2ddp.source.helper_module import is_helper_module
from dp2ddp.source.projects import Project, read_project
from dp2ddp.source.writing import alone_in, write_together
from dp2ddp.styles import STYLES


class ConvertDataParallel(CodemodCommand):
    """Converts the scripts among the files, with their local modules and the module that holds the helpers."""

    DESCRIPTION = "Converts scripts from torch.nn.DataParallel to DistributedDataParallel, one process a GPU."

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """Options of the tool; no formatter is run, for what the conversion is not about stays as it is."""
        arg_parser.set_defaults(no_format=True)
        arg_parser.add_argument(
            "--one-file",
            action="store_true",
            help="paste the helpers into the script, instead of ddp_helpers.py",
        )
        arg_parser.add_argument(
            "--import", dest="imports", action="store_true", help="import the helpers from dp2ddp.helpers"
        )
        arg_parser.add_argument(
            "--style", choices=sorted(STYLES), default="exact", help="as of dp2ddp convert"
        )

    def __init__(
        self, context: CodemodContext, one_file: bool = False, imports: bool = False, style: str = "exact"
    ) -> None:
        super().__init__(context)
        place = HelperPlace.IN_SCRIPT if one_file else HelperPlace.BESIDE
        self.options = Options(helpers=HelperPlace.PACKAGE if imports else place, style=style)

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The converted file; SkipFile for one that does not change. Other files are written here, together."""
        name = self.context.filename
        if name is None:
            return self._converted(Project(SourceFile(None, tree.code)), tree)
        path = Path(name)
        with alone_in(path.absolute().parent):
            return self._converted(read_project(path), tree)

    def _converted(self, project: Project, tree: cst.Module) -> cst.Module:
        if is_helper_module(project.entry.text):
            raise SkipFile("helpers of a conversion")
        conversion = convert(project, self.options)
        for hazard in conversion.hazards:
            self.warn(hazard_line(hazard, conversion))
        if not conversion.changed:
            raise SkipFile(_why_unchanged(conversion))
        converted = cst.parse_module(conversion.entry.data)
        if converted.bytes != conversion.entry.data:
            raise ConversionError(
                f"{project.entry.name}: libcst's tool would not write it as it is; use dp2ddp convert"
            )
        beside = conversion.files_beside
        held = conversion.held_files
        write_together(beside, {path: held[path] for path in beside})
        if converted.code == tree.code:
            raise SkipFile("only its local modules change")
        return converted


def hazard_line(hazard: Planned, conversion: Conversion) -> str:
    """A hazard in one line."""
    advice = getattr(hazard.finding, "advice", "")
    file = hazard.file or conversion.before.name
    return f"{file}: {hazard.place}: {hazard.because} ({hazard.code})" + (f": {advice}" if advice else "")


def _why_unchanged(conversion: Conversion) -> str:
    if conversion.hazards:
        return "hazards stand in the way"
    if any(name in conversion.before.text for name in JOINS):
        return "converted already"
    return "nothing to convert" if MENTION.search(conversion.before.text) else "no DataParallel in it"
