"""The flags that say in which etcd repositories keep everything, and how it is reached."""

from argparse import ArgumentParser
from typing import Any

from varlog.base.errors import InvalidArgument
from varlog.cli.frame import Arguments

FLAGS = ("prefix", "ca", "certificate", "key", "compact")


def add_etcd_flags(parser: ArgumentParser, etcd: str) -> None:
    """With `etcd` as the help of the first of them."""
    parser.add_argument("--etcd", metavar="HOST:PORT,...", help=etcd)
    parser.add_argument("--etcd-prefix", metavar="TEXT", help="before every key in etcd (default: varlog/)")
    parser.add_argument("--etcd-ca", metavar="FILE", help="authorities to check etcd's certificate against: use TLS")
    parser.add_argument("--etcd-certificate", metavar="FILE", help="own certificate, with --etcd-key")
    parser.add_argument("--etcd-key", metavar="FILE", help="private key of --etcd-certificate")
    parser.add_argument(
        "--etcd-no-compact",
        dest="etcd_compact",
        action="store_const",
        const=False,
        help="leave old revisions to others: etcd compacts by itself, and somebody needs them",
    )


def etcd_settings(arguments: Arguments) -> dict[str, Any]:
    """What is said of an etcd, as far as it is; refused where none is given."""
    found = {name: value for name in FLAGS if (value := getattr(arguments, f"etcd_{name}")) is not None}
    if found and not arguments.etcd:
        raise InvalidArgument(f"{_flag(next(iter(found)))} says something of an etcd, and none is given: add --etcd")
    return found


def etcd_words(arguments: Arguments) -> list[str]:
    """The same flags for the command line of a repository."""
    found = etcd_settings(arguments).items()
    words = [word for name, value in found for word in ((_flag(name),) if value is False else (_flag(name), value))]
    return ["--etcd", arguments.etcd, *words] if arguments.etcd else []


def _flag(name: str) -> str:
    return "--etcd-no-compact" if name == "compact" else f"--etcd-{name}"
