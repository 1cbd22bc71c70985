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

Act = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _runs(parser: argparse.ArgumentParser, module: str, function: str) -> None:
    """Have a parser's words run a function of `webtune.cli`. Its module is imported when it is
    used: `--help` needs none of them."""

    def act(options: argparse.Namespace) -> int:
        command: Act = getattr(importlib.import_module(f"webtune.cli.{module}"), function)
        return command(options)

    parser.set_defaults(act=act)


def _parser() -> _Parser:
    parser = _Parser(
        prog="webtune", description="Tunes WGSL compute kernels on the device that is really there."
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    words = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_doctor(words.add_parser("doctor", help="what this machine offers, and what is wrong"))
    adapters = words.add_parser("adapters", help="list the adapters of this machine")
    _add_json(adapters)
    _runs(adapters, "adapters", "adapters")
    _add_tune(words.add_parser("tune", help="tune bundled kernels"))
    _add_cache(words.add_parser("cache", help="what is remembered"))
    _add_replay(words.add_parser("replay", help="judge protocols on recorded timings"))
    return parser


def _add_flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, action="store_true", help=text)


def _add_json(parser: argparse.ArgumentParser) -> None:
    _add_flag(parser, "--json", "print one JSON document")


def _add_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--adapter", metavar="TEXT", help="part of the name of the adapter to use")


def _add_doctor(doctor: argparse.ArgumentParser) -> None:
    _add_adapter(doctor)
    _add_flag(doctor, "--roofline", "measure the device's peaks too (remembered)")
    _add_json(doctor)
    _runs(doctor, "doctor", "doctor")


def _add_tune(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("kernels", nargs="*", metavar="KERNEL", help="bundled kernels (all of them)")
    tune.add_argument(
        "--size",
        action="append",
        metavar="SIZE",
        help="default, large, small, or spelled out like 512x512x512; may be repeated",
    )
    tune.add_argument("--strategy", metavar="NAME", help="adaptive, fixed, …")
    _add_flag(tune, "--fresh", "measure even what is remembered")
    _add_flag(tune, "--roofline", "measure the device's peaks first (remembered)")
    _add_flag(tune, "--no-check", "do not check answers first")
    _add_flag(tune, "--explain", "show every candidate too")
    _add_flag(tune, "--quiet", "no progress")
    _add_adapter(tune)
    _add_json(tune)
    _runs(tune, "tune", "tune")


def _add_cache(cache: argparse.ArgumentParser) -> None:
    words = cache.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, function: str, text: str) -> argparse.ArgumentParser:
        parser = words.add_parser(name, help=text, description=text)
        _runs(parser, "cache", function)
        return parser

    for name, function, text in (
        ("list", "list_picks", "one line a pick"),
        ("show", "show_picks", "all that is remembered of picks"),
    ):
        parser = add(name, function, text)
        _add_selection(parser, everything="the measured peaks of devices too")
        _add_json(parser)
    add("path", "print_path", "where the picks lie")
    _add_selection(add("purge", "purge", "forget picks"), everything="forget everything")
    export = add("export", "export_picks", "write picks as one JSON document")
    _add_selection(export)
    export.add_argument("file", nargs="?", default="-", help="a file, or - for standard output")
    import_ = add("import", "import_picks", "merge documents into the store")
    merge = add("merge", "merge_bundles", "join exported documents into one")
    for parser in (import_, merge):
        parser.add_argument("files", nargs="+", metavar="FILE", help="exported documents, or -")
    merge.add_argument("--output", "-o", default="-", metavar="FILE", help="where to write")


def _add_selection(parser: argparse.ArgumentParser, everything: str = "") -> None:
    """The options that name picks; a plain word and `--all` where there is something to say of
    everything."""
    parser.add_argument("--kernel", dest="name", metavar="NAME", help="of this kernel")
    parser.add_argument(
        "--key", metavar="JSON", help="of this key, such as '[1024,1024]'; spaces are free"
    )
    parser.add_argument("--environment", metavar="NAME", help="of this environment")
    parser.add_argument("--hardware", metavar="TEXT", help="part of a name, or a digest")
    if everything:
        parser.add_argument("word", nargs="?", metavar="KERNEL", help="of this kernel, as --kernel")
        _add_flag(parser, "--all", everything)


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
    _add_json(measure)
    _runs(measure, "replay", "measure")


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
