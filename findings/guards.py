"""Does each guard earn its place? Every one is taken out in turn, in a copy of the code, and the tests that stand for
it must fail.

    python findings/guards.py            # all, about 15 minutes on 2 cores
    python findings/guards.py --only B6  # those of one fault

A guard is a piece of text in a file and what stands there without it; a piece that is no longer found is an error here.
The last line of the output is one JSON object.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import tyro

ROOT = Path(__file__).parent.parent
COPIED = ("tenuto", "tests", "findings", "tenuto_command.py", "pyproject.toml", "requirements.lock")


class Guard(NamedTuple):
    """A piece of code, what takes its place, and the tests (as pytest's -k selects them) that must notice."""

    fault: str
    file: str
    piece: str
    without: str
    tests: str
    where: str = "tests/test_faults.py"


FOLDERS, STORAGE, FILES = "tenuto/runs/folders.py", "tenuto/runs/storage.py", "tenuto/files.py"
RUNNER, CLI, REGISTRY = "tenuto/runs/runner.py", "tenuto/cli/__init__.py", "tenuto/envs/registry.py"
LAYOUT, JOBS, API = "tenuto/runs/layout.py", "tenuto/runs/jobs.py", "tenuto/api.py"
LOCKED = "with folders.alone_in(folder), contextlib.ExitStack() as closing:"
GUARDS = (
    Guard(
        "B1 claimed before the lock",
        RUNNER,
        f"        {LOCKED}\n            folders.claim(job, folder)\n",
        f"        folders.claim(job, folder)\n        {LOCKED}\n",
        "reserved_only_by",
    ),
    Guard(
        "B1 digest of whatever lies there",
        RUNNER,
        "return finish(self._job, self._folder, self._digest,",
        "return finish(self._job, self._folder, folders.config_digest(self._folder),",
        "digest_of_the_job or whatever_becomes",
    ),
    Guard("B2 links followed", FILES, ' | getattr(os, "O_NOFOLLOW", 0)', "", "never_leads_a_write"),
    Guard(
        "B2 a link as temporary file",
        FILES,
        "    temporary.unlink(missing_ok=True)  # of an earlier",
        "    # of an earlier",
        "laid_there",
    ),
    Guard(
        "B3 files without their run",
        LAYOUT,
        "None if version >= storage.SEALED else config",
        "config",
        "names_no_run",
    ),
    Guard(
        "B3 records unchecked",
        FOLDERS,
        "read_arrays(path, config_digest(folder))[0], path)",
        "read_arrays(path)[0], path)",
        "file_of_another",
    ),
    Guard(
        "B3 summary unchecked",
        FOLDERS,
        '    if content.pop("config", None) != config_digest(folder) and',
        '    if content.pop("config", None) is None and',
        "file_of_another",
    ),
    Guard(
        "B3 no checksum",
        STORAGE,
        "(version >= SEALED or digest is not None) and digest",
        "False and digest",
        "every_flipped_bit",
    ),
    Guard(
        "B4 modules imported",
        "tenuto/cli/train.py",
        "    if not command.trust:\n        refuse_imports(job, command.dir)\n",
        "",
        "only_if_it_is_trusted",
    ),
    Guard(
        "B5 Ctrl-C",
        "tenuto_command.py",
        "    signal.signal(signal.SIGINT, signal.SIG_DFL)\n",
        "",
        "ctrl_c_at_the_start",
    ),
    Guard(
        "B6 lock removed",
        FOLDERS,
        "        lock.acquire()\n",
        "        (folder / LOCK).unlink(missing_ok=True)\n        lock.acquire()\n",
        "inside_together",
    ),
    Guard("B6 no locks", FOLDERS, "problem.errno in NO_LOCKS", "False", "without_locks"),
    Guard(
        "B7 limits", JOBS, "    if not given.unlimited:\n        _check_limits(request)\n", "", "heads or by_who_knows"
    ),
    Guard(
        "B7 memory",
        RUNNER,
        "    if not job.given.unlimited:\n        needs.check_memory([job], at_a_time=1)\n",
        "",
        "larger_than_the_memory",
    ),
    Guard(
        "B7 pipes",
        FILES,
        "if not stat.S_ISREG(mode):\n        os.close",
        "if False:\n        os.close",
        "pipe",
    ),
    Guard(
        "B7 bombs", STORAGE, "            _refuse_hidden_size(file)\n", "", "small_archive or larger_than_its_header"
    ),
    Guard("B7 address space", CLI, "    if limit and limit < LEAST_MEMORY:", "    if False:", "address_space"),
    Guard(
        "B7 out of memory",
        CLI,
        "    except MemoryError as problem:",
        "    except ZeroDivisionError as problem:",
        "memory_that_runs_out",
    ),
    Guard("B8 temporary files", FOLDERS, "        files.tidy(folder)\n", "", "was_writing"),
    Guard("B9 no figures", "tenuto/cli/train.py", "and not left_to_do(command.dir)", "", "after_its_summary"),
    Guard("B9 checkpoint left", RUNNER, "    if folders.left_over(folder):", "    if False:", "after_its_summary"),
    Guard(
        "B11 no home",
        "tenuto/trainers/devices.py",
        "contextlib.suppress(RuntimeError)",
        "contextlib.suppress()",
        "without_a_home",
    ),
    Guard("B12 full disk unnamed", FILES, "        problem.filename = str(path)", "        pass", "full_disk"),
    Guard(
        "B12 output",
        CLI,
        "    except OSError as problem:  # `tenuto list > /dev/full`",
        "    except ZeroDivisionError as problem:",
        "output_that_cannot",
    ),
    Guard(
        "B14 failing module",
        REGISTRY,
        "    except (Exception, SystemExit) as problem:",
        "    except ZeroDivisionError as problem:",
        "fails_at_its_import",
    ),
    Guard(
        "B15 large numbers",
        "tenuto/runs/request.py",
        '    except (TypeError, ValueError, OverflowError):\n        raise UserError(f"{flag(name)} must be finite',
        '    except ZeroDivisionError:\n        raise UserError(f"{flag(name)} must be finite',
        "not_finite",
    ),
    Guard(
        "B15 deep JSON",
        STORAGE,
        "    except (OSError, ValueError, RecursionError) as problem:",
        "    except (OSError, ValueError) as problem:",
        "too_deep",
    ),
    Guard("B15 clocks", LAYOUT, "if type(t) is not int or not 0 <= t <= MOST_STEPS or", "if", "forged_clock"),
    Guard("B15 headers", STORAGE, 'if not isinstance(header["about"], dict):', "if False:", "header_that_is_no_object"),
    Guard("B16 lost checkpoint", RUNNER, "0.0, _lost_note(folder)", "0.0, []", "checkpoint_is_gone"),
    Guard(
        "U1 saved twice",
        API,
        "            there = folders.check(self.job, target)\n",
        "            there = False\n            folders.make_folder(target)\n",
        "saved_over",
    ),
    Guard("U1 run lost", API, "                run._temporary.detach()", "                pass", "not_lost"),
)


@dataclass
class Options:
    only: str = ""
    """Only guards whose fault begins with this."""


def noticed(guard: Guard, copy: Path) -> bool:
    """Whether a test fails once the guard is gone."""
    path = copy / guard.file
    whole = path.read_text()
    if guard.piece not in whole:
        raise SystemExit(f"{guard.fault}: the piece is no longer in {guard.file}: {guard.piece!r}")
    path.write_text(whole.replace(guard.piece, guard.without, 1))
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        guard.where,
        "-k",
        guard.tests,
    ]
    try:
        done = subprocess.run(words, cwd=copy, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return True  # it waits for ever
    finally:
        path.write_text(whole)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{guard.fault}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-500:]}"
        )
    return done.returncode == 1


def main(options: Options) -> int:
    chosen = [guard for guard in GUARDS if guard.fault.startswith(options.only)]
    found = {}
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        for name in COPIED:
            source = ROOT / name
            copying = shutil.copytree if source.is_dir() else shutil.copy
            copying(source, copy / name)
        for guard in chosen:
            found[guard.fault] = noticed(guard, copy)
            print(f"{guard.fault}: {'noticed' if found[guard.fault] else 'NOT NOTICED'}", flush=True)
    print(json.dumps({"name": "guards", "taken_out": len(found), "noticed": sum(found.values())}))
    return int(not all(found.values()))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
