"""`tenuto export`: a policy as a file that is used without tenuto."""

import shlex
from pathlib import Path

from tenuto import files, numpy_policy
from tenuto.api import load
from tenuto.cli.commands import Export
from tenuto.console import say
from tenuto.errors import UserError

CODE = Path(numpy_policy.__file__)


def export(command: Export, words: list[str]) -> None:
    beside, numpy_alone = command.out.parent / CODE.name, command.out.suffix == ".npz"
    if command.with_code:
        check_code(command.out, beside)
    run = load(command.dir)
    if not 0 <= command.lane < len(run):
        raise UserError(f"--lane must be 0 to {len(run) - 1}: {command.dir} has {len(run)} lanes")
    policy = (run.best if command.best else run)[command.lane]
    written = policy.export(command.out)
    say(f"{written}: {written.stat().st_size:,} bytes, {policy!r}")
    if command.with_code:
        files.write_whole(beside, lambda file: file.write(CODE.read_bytes()))
    if numpy_alone:
        where = beside if command.with_code else CODE
        say(f"It is read by {where}, which needs NumPy only:")
        say(f"    action, length = numpy_policy.load({written.name!r}).decide(obs)")
    if numpy_alone and not command.with_code:
        say(f"Copy that file, too: cp {shlex.quote(str(CODE))} {shlex.quote(str(command.out.parent))}")


def check_code(out: Path, beside: Path) -> None:
    """Raise an error where the code is of no use, or would be written over another file."""
    if out.suffix != ".npz":
        raise UserError(
            f"--with-code copies what reads an .npz, and {out} is none: leave it out, or end --out with .npz"
        )
    if beside.exists() and beside.read_bytes() != CODE.read_bytes():
        raise UserError(f"{beside} is there already, and is another file: move it, or choose another folder for --out")
