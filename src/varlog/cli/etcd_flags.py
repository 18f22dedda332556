"""The flags that say in which etcd repositories keep everything, and how it is reached."""

from argparse import ArgumentParser
from typing import Any

from varlog.base.errors import InvalidArgument
from varlog.cli.frame import Arguments

FLAGS = ("prefix", "ca", "certificate", "key")


def add_etcd_flags(parser: ArgumentParser, etcd: str) -> None:
    """With `etcd` as the help of the first of them."""
    parser.add_argument("--etcd", metavar="HOST:PORT,...", help=etcd)
    parser.add_argument("--etcd-prefix", metavar="TEXT", help="before every key in etcd (default: varlog/)")
    parser.add_argument("--etcd-ca", metavar="FILE", help="authorities to check etcd's certificate against: use TLS")
    parser.add_argument("--etcd-certificate", metavar="FILE", help="own certificate, with --etcd-key")
    parser.add_argument("--etcd-key", metavar="FILE", help="private key of --etcd-certificate")


def etcd_settings(arguments: Arguments) -> dict[str, Any]:
    """What is said of an etcd, as far as it is; refused where none is given."""
    found = {name: value for name in FLAGS if (value := getattr(arguments, f"etcd_{name}")) is not None}
    if found and not arguments.etcd:
        raise InvalidArgument(f"--etcd-{next(iter(found))} says something of an etcd, and none is given: add --etcd")
    return found


def etcd_words(arguments: Arguments) -> list[str]:
    """The same flags for the command line of a repository."""
    words = [word for name, value in etcd_settings(arguments).items() for word in (f"--etcd-{name}", value)]
    return ["--etcd", arguments.etcd, *words] if arguments.etcd else []
