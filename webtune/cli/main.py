"""The `webtune` command: words in, an exit status out. A failure is one line, never a traceback.

Exit status: 0 good, 1 something failed or is broken, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from webtune.errors import HostUnavailable, NoValidKernel, UsageError, WebtuneError

__all__ = ["main"]

Act = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _command(module: str, function: str) -> Act:
    """A command whose module is imported when it is used: `--help` needs none of them."""

    def act(options: argparse.Namespace) -> int:
        found: Act = getattr(importlib.import_module(f"webtune.cli.{module}"), function)
        return found(options)

    return act


def _parser() -> _Parser:
    parser = _Parser(
        prog="webtune", description="Tunes WGSL compute kernels on the device that is really there."
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    words = parser.add_subparsers(title="commands", metavar="COMMAND")

    doctor = words.add_parser("doctor", help="what this machine offers, and what is wrong")
    _adapter(doctor)
    doctor.add_argument(
        "--roofline", action="store_true", help="measure the device's peaks too (remembered)"
    )
    _json(doctor)
    doctor.set_defaults(act=_command("doctor", "doctor"))

    adapters = words.add_parser("adapters", help="list the adapters of this machine")
    _json(adapters)
    adapters.set_defaults(act=_command("doctor", "adapters"))

    _add_tune(words.add_parser("tune", help="tune bundled kernels"))
    _add_cache(words.add_parser("cache", help="what is remembered"))
    _add_replay(words.add_parser("replay", help="judge protocols on recorded timings"))
    return parser


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapter", metavar="TEXT", help="part of the name of the adapter to use")


def _add_tune(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("kernels", nargs="*", metavar="KERNEL", help="bundled kernels (all of them)")
    tune.add_argument(
        "--size",
        action="append",
        metavar="SIZE",
        help="default, large, small, or spelled out like 512x512x512; may be repeated",
    )
    tune.add_argument("--strategy", metavar="NAME", help="adaptive, fixed, …")
    tune.add_argument("--fresh", action="store_true", help="measure even what is remembered")
    tune.add_argument(
        "--roofline", action="store_true", help="measure the device's peaks first (remembered)"
    )
    tune.add_argument("--no-check", action="store_true", help="do not check answers first")
    tune.add_argument("--explain", action="store_true", help="show every candidate too")
    tune.add_argument("--quiet", action="store_true", help="no progress")
    _adapter(tune)
    _json(tune)
    tune.set_defaults(act=_command("tune", "tune"))


def _add_cache(cache: argparse.ArgumentParser) -> None:
    words = cache.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def word(name: str, function: str, text: str, *, selects: bool) -> argparse.ArgumentParser:
        parser = words.add_parser(name, help=text, description=text)
        parser.set_defaults(act=_command("cache", function))
        if selects:
            parser.add_argument("--kernel", dest="name", metavar="NAME", help="of this kernel")
            parser.add_argument(
                "--key", metavar="JSON", help="of this key, such as '[1024,1024]'; spaces are free"
            )
            parser.add_argument("--environment", metavar="NAME", help="of this environment")
            parser.add_argument("--hardware", metavar="TEXT", help="part of a name, or a digest")
        return parser

    def kernel(parser: argparse.ArgumentParser, everything: str) -> None:
        parser.add_argument("word", nargs="?", metavar="KERNEL", help="of this kernel, as --kernel")
        parser.add_argument("--all", action="store_true", help=everything)

    for name, function, text in (
        ("list", "listing", "one line a pick"),
        ("show", "show", "all that is remembered of picks"),
    ):
        parser = word(name, function, text, selects=True)
        kernel(parser, "the measured peaks of devices too")
        _json(parser)
    word("path", "path", "where the picks lie", selects=False)
    kernel(word("purge", "forget", "forget picks", selects=True), "forget everything")
    export = word("export", "export", "write picks as one JSON document", selects=True)
    export.add_argument("file", nargs="?", default="-", help="a file, or - for standard output")
    entry = word("import", "import_", "merge documents into the store", selects=False)
    entry.add_argument("files", nargs="+", metavar="FILE", help="exported documents, or -")
    merge = word("merge", "merge", "join exported documents into one", selects=False)
    merge.add_argument("files", nargs="+", metavar="FILE", help="exported documents, or -")
    merge.add_argument("--output", "-o", default="-", metavar="FILE", help="where to write")


def _add_replay(replay: argparse.ArgumentParser) -> None:
    words = replay.add_subparsers(title="commands", metavar="COMMAND", required=True)
    measure = words.add_parser(
        "measure",
        help="regret and launches of a measuring protocol",
        epilog=_SPACES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    measure.add_argument(
        "--spaces", required=True, metavar="DIR", help="recorded spaces (*.json.gz, see below)"
    )
    measure.add_argument(
        "--protocol",
        required=True,
        metavar="NAME",
        help="a strategy (adaptive, fixed, …), or median-10, median-30, mean-7, min-3",
    )
    measure.add_argument(
        "--candidates", type=int, default=16, metavar="N", help="of each trial (default: 16)"
    )
    measure.add_argument(
        "--seeds", type=int, default=200, metavar="N", help="trials of each space (default: 200)"
    )
    measure.add_argument(
        "--order",
        choices=("resampled", "recorded"),
        default="resampled",
        help="runs drawn by chance (default), or as they were recorded, round and round",
    )
    measure.add_argument(
        "--drift",
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="a common ramp: 0.1 makes all 10 %% slower in ten launches of every candidate",
    )
    _json(measure)
    measure.set_defaults(act=_command("replay", "measure"))


_SPACES = """\
A recorded space is a gzipped JSON document, one for each kernel and device:

  kernel, device  names, for people
  unit            of the samples: ns, us, ms (the default) or s
  params          each parameter's name, with the list of its values
  order           the names of the parameters, in the order in which configs tell them
  configs         one list of values for each configuration
  samples         for each configuration its runs in the order in which they were taken, or null
                  where it did not run

Only unit and samples are read. docs/replay.md has a few lines of Python that write one.
"""


def _plain_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"webtune: {message}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.version:
        import webtune

        print(f"webtune {webtune.__version__}")
        return 0
    if not hasattr(options, "act"):
        parser.print_help(sys.stderr)
        return 2
    warnings.showwarning = _plain_warning
    try:
        status: int = options.act(options)
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _fail(error, 2)
    except (HostUnavailable, NoValidKernel) as error:
        return _fail(error, 1, hint="; `webtune doctor` looks for what is wrong")
    except WebtuneError as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read us has had enough; the interpreter must not complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(error: Exception, status: int, hint: str = "") -> int:
    text = " ".join(str(error).split())
    print(f"webtune: {text}{hint}", file=sys.stderr)
    return status
