"""The frame of the command line: dispatch, exit status, and errors that are one line."""

import argparse
import io
import subprocess
import sys

import pytest

from varlog.base.errors import InvalidArgument, NotFound, Timeout, Unavailable, VarlogError
from varlog.cli import main as main_module
from varlog.cli.frame import (
    DEFAULT_CLUSTER,
    Parser,
    add_command,
    cluster_url,
    confirmed,
    parse_range,
    positive,
    shared_flags,
    split_addresses,
)
from varlog.cli.main import main, run


def running(error: BaseException, hints: str = "client") -> int:
    def fail(_: argparse.Namespace) -> None:
        raise error

    return run(argparse.Namespace(run=fail, hints=hints))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "hints", "status", "line"),
    [
        (NotFound("no log 'a'"), "client", 1, "varlog: no log 'a'\n"),
        (InvalidArgument("'?' cannot be a name"), "client", 2, "varlog: '?' cannot be a name\n"),
        (Unavailable("no repository answers"), "client", 1, "varlog: no repository answers; is the cluster running"),
        (Unavailable("the folder is in use"), "server", 1, "varlog: the folder is in use; end the process"),
        (
            Unavailable("9 replicas need 9 nodes"),
            "connected",
            1,
            "varlog: 9 replicas need 9 nodes; `varlog status` shows",
        ),
        (Unavailable("odd"), "files", 1, "varlog: odd\n"),
        (IsADirectoryError(21, "Is a directory"), "client", 1, "varlog: Is a directory\n"),
        (VarlogError("two\nlines"), "client", 1, "varlog: two lines\n"),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), "client", 1, "varlog: x.txt: No such file"),
        (ZeroDivisionError("oops"), "client", 1, "varlog: internal error: ZeroDivisionError: oops; this is a bug"),
        (KeyboardInterrupt(), "client", 130, ""),
    ],
)
def test_every_failure_is_one_line(
    error: BaseException, hints: str, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running(error, hints) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(line)
    assert printed.err.count("\n") == (1 if line else 0)


def test_the_traceback_of_a_bug_is_there_for_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VARLOG_TRACEBACK", "1")
    assert running(ZeroDivisionError("oops")) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_hint_of_the_nearest_class_counts() -> None:
    class Slow(Timeout):
        pass

    assert "varlog status" in main_module.hint(Slow("slow"), "client")
    assert main_module.hint(VarlogError("odd"), "client") == ""


MEMBERS = ["log", "reconfigure", "orders", "--members", "1,b"]


@pytest.mark.parametrize(
    "arguments", [[], ["no-such-command"], ["repository"], ["repository", "start", "--odd"], MEMBERS]
)
def test_wrong_usage_is_status_two_and_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("varlog: ")
    assert printed.err.count("\n") == 1
    assert "--help" in printed.err


def test_streams_that_cannot_say_everything_or_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(said, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", None)
    main_module.mend_streams()
    with sys.stderr:
        assert running(VarlogError("heard by nobody")) == 1
    print("é\udcff")
    sys.stdout.flush()
    assert said.getvalue() == b"\\xe9\\udcff\n"


def test_the_end_of_input_is_no_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, meant in (("y\n", True), (" YES \n", True), ("\n", False), ("", False)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(said))
        assert confirmed("really?") is meant


def test_a_closed_pipe_is_no_traceback() -> None:
    script = (
        "import sys, argparse\n"
        "from varlog.cli.main import run\n"
        "def flood(_):\n"
        "    for number in range(1_000_000): print(number)\n"
        "sys.exit(run(argparse.Namespace(run=flood, hints='client')))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_python_dash_m_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "varlog", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("varlog ")


def test_help_costs_next_to_nothing() -> None:
    """Help, and a typing mistake, should be quick."""
    script = (
        "import sys\nfrom varlog.cli.main import build_parser\nbuild_parser(['--help']).format_help()\n"
        "heavy = ['asyncio', 'google.protobuf', 'varlog.client', 'varlog.node', 'varlog.repository', 'sqlite3']\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("family", sorted(main_module.FAMILIES))
def test_every_family_loads_and_explains_itself(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([family, "--help"])
    assert exit_.value.code == 0
    assert f"varlog {family}" in capsys.readouterr().out


# ---------------------------------------------------------------- flags


def parse(*arguments: str) -> argparse.Namespace:
    parser = Parser(prog="varlog", parents=[shared_flags(top=True)])
    commands = parser.add_subparsers(parser_class=Parser)
    add_command(commands, "look", lambda _: None, "look around")
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster", "varlog://h:1", "-o", "json", "look"],
        ["look", "--cluster", "varlog://h:1", "-o", "json"],
        ["-o", "json", "look", "--cluster", "varlog://h:1"],
        ["--cluster", "varlog://other:2", "look", "--cluster", "h:1", "-o", "json"],
    ],
)
def test_shared_flags_stand_on_either_side(arguments: list[str]) -> None:
    parsed = parse(*arguments)
    assert cluster_url(parsed) == "varlog://h:1"
    assert parsed.output == "json"


def test_the_cluster_comes_from_flag_then_environment_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VARLOG_CLUSTER", raising=False)
    assert cluster_url(parse("look")) == DEFAULT_CLUSTER
    monkeypatch.setenv("VARLOG_CLUSTER", "varlog://env:1")
    assert cluster_url(parse("look")) == "varlog://env:1"
    assert cluster_url(parse("look", "--cluster", "flag:1,flag:2")) == "varlog://flag:1,flag:2"
    with pytest.raises(InvalidArgument):
        cluster_url(parse("look", "--cluster", "https://flag:1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1..10", (1, 10)), ("7", (7, 7)), ("5..", (5, 0)), ("..9", (1, 9)), ("..", (1, 0)), ("3..3", (3, 3))],
)
def test_ranges(text: str, expected: tuple[int, int]) -> None:
    assert parse_range(text) == expected


@pytest.mark.parametrize("text", ["", "a..b", "0..3", "9..3", "5..0", "-1", "1...3", "1.5"])
def test_odd_ranges(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_range(text)


@pytest.mark.parametrize("text", ["0", "-3", "x", "1.5", ""])
def test_numbers_above_zero(text: str) -> None:
    assert positive("12") == 12
    with pytest.raises(argparse.ArgumentTypeError):
        positive(text)


def test_addresses_with_commas_and_repeated() -> None:
    assert split_addresses(["a:1,b:2", " c:3 ", ""]) == ("a:1", "b:2", "c:3")
