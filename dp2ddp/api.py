"""What the commands do, as functions: `import dp2ddp` has them (docs/api.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import RunError
from dp2ddp.options import BenchOptions, CheckOptions, ConvertOptions, VerifyOptions, WriteOptions, by_keyword
from dp2ddp.progress import Within

if TYPE_CHECKING:
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.costs.figures import Benchmark
    from dp2ddp.report.comparison import Report
    from dp2ddp.review.checking import CheckResult


class VerificationError(RunError):
    """A run failed, hung or could not be started; `report` has what was found before."""

    def __init__(self, error: RunError, report: Report) -> None:
        super().__init__(str(error), error.details)
        self.report = report


class BenchmarkError(RunError):
    """The same of a benchmark; `benchmark` has what was measured before."""

    def __init__(self, error: RunError, benchmark: Benchmark) -> None:
        super().__init__(str(error), error.details)
        self.benchmark = benchmark


@by_keyword(ConvertOptions)
def convert(options: ConvertOptions) -> Conversion:
    """Convert a DataParallel script, and the local modules that it imports; nothing is imported, run or written.

    script: also a notebook, or "-" for stdin. output: only looked at here: helpers are looked for beside it.
    helpers: a module beside the script, or pasted "in the script" (beside it all the same, where other modules change,
    too), or imported from the "package" dp2ddp.
    renew_helpers: write a module of helpers that is there already anew, whoever changed it.

    Returns the conversion; look at its `hazards`: while any is open, it is not to be relied on.
    Raises SourceError for what cannot be read, ConversionError for what cannot be carried out, UnmatchedAcceptanceError
    for an answer to no hazard, OptionError (a ValueError) for options that do not go together or do not exist.
    """
    from dp2ddp.codemod.conversion import Options
    from dp2ddp.codemod.convert import convert as convert_project
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.codemod.result_files import names_file, refuse_other_files
    from dp2ddp.source.neighbours import other_entries
    from dp2ddp.source.projects import module_file, read_project

    script, output, progress = str(options.script), options.output, options.progress
    how = Options(
        style=options.style,
        select=tuple(options.select),
        ignore=tuple(options.ignore),
        accept=options.answers,
        helpers=HelperPlace(options.helpers),
        renew_helpers=options.renew_helpers,
    )
    progress.begin(f"reading {script}")
    project = read_project(module_file(script) if options.as_module else script, options.as_module)
    if output is not None:
        refuse_other_files(str(output), project.entry)
    if output is not None and names_file(str(output), project.entry):
        project = project.written_to(Path(output))
    conversion = convert_project(project, how, Within(progress, f"converting {script}").begin)
    if conversion.is_project:
        progress.begin("looking for other scripts that import what changes")
        changed = (file.before.path for file in conversion.files if file.changed)
        conversion = replace(conversion, used_by=other_entries(project, [path for path in changed if path]))
    return conversion


@by_keyword(WriteOptions)
def write_conversion(options: WriteOptions) -> str | None:
    """Write a conversion, all its files or none of them.

    output: a file for the script, as it was given to `convert`; NAME_ddp.py beside the original by default. A folder
    gets a converted copy of the whole project, which is needed where local modules change.
    remark: gets a line for what is worth knowing beside it.

    Returns the script to start; None if nothing changes. `conversion.launch_of` tells how. Raises SourceError if
    something is in the way or cannot be written, OptionError for options that do not go together.
    """
    from dp2ddp.codemod import result_files

    conversion, force, remark = options.conversion, options.force, options.remark
    output = None if options.output is None else str(options.output)
    if options.in_place:
        return result_files.write_in_place(conversion, force=force, remark=remark)
    if output:
        result_files.refuse_other_files(output, conversion.before)
    return result_files.write(conversion, output, force=force, remark=remark)


def write_report(
    result: Conversion | Report | Benchmark, path: str | Path, *, written: str | None = None
) -> None:
    """Write what `convert`, `verify` or `bench` found as a report: .html to read, .md for a pull request.

    written: of a conversion, what `write_conversion` returned; the report then tells how to start it.

    Raises SourceError if the file cannot be written, or ends otherwise.
    """
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.report import report_files
    from dp2ddp.report.conversion_report import conversion_report

    report_files.check_target(Path(path))
    shown = conversion_report(result, written) if isinstance(result, Conversion) else result
    report_files.write_report(shown, Path(path))


@by_keyword(VerifyOptions)
def verify(options: VerifyOptions) -> Report:
    """Train a script with DataParallel and its DDP version in scratch copies of the current folder, and compare.

    Returns the report: `report.same`, and a verdict for each number of devices. Raises VerificationError if a run
    fails, HazardError if the script cannot be converted without its owner, SourceError if it cannot be read,
    MissingError if torch is not installed, OptionError for options that do not go together.
    """
    from dp2ddp.trial.scripts import ready_to_run

    ready_to_run("verify", options.script, options.as_module, options.port)
    from dp2ddp.trial.all_trials import verify as verify_all

    report, failure = verify_all(options)
    if failure:
        raise VerificationError(failure, report) from failure
    return report


@by_keyword(BenchOptions)
def bench(options: BenchOptions) -> Benchmark:
    """Time a script with DataParallel and its DDP version with the same batches, one after the other.

    Returns what was measured for each number of devices: seconds, bytes (dp2ddp.costs.figures). Raises BenchmarkError
    if a run fails, and what `verify` raises.
    """
    from dp2ddp.trial.scripts import ready_to_run

    ready_to_run("bench", options.script, options.as_module, options.port)
    from dp2ddp.trial.timing import bench as bench_all

    benchmark, failure = bench_all(options)
    if failure:
        raise BenchmarkError(failure, benchmark) from failure
    return benchmark


@by_keyword(CheckOptions)
def check(options: CheckOptions) -> CheckResult:
    """Look through files, folders and notebooks for what is wrong, or in the way of DDP; nothing is run or imported.

    text: what the one path has in it, instead of what lies on the disk: an editor's buffer.

    Codes count beside those of `[tool.dp2ddp]` in pyproject.toml.

    Returns the problems with file, line, code, text and level; `fails` says whether any is more than a note, or a file
    could not be read. Raises SourceError for what cannot be read, OptionError for codes that no rule has.
    """
    from dp2ddp.commands import COMMANDS
    from dp2ddp.review.checking import whole_check

    return whole_check(options, COMMANDS)
