"""Which names people may give to logs and producers."""

import re

from varlog.base.errors import InvalidArgument, TooLarge
from varlog.base.limits import NAME_CHARACTERS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def check_name(name: object, what: str = "log") -> str:
    """The name, if it is one: ASCII letters, digits, '.', '_' and '-', beginning with a letter or digit."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a {what} is text, not {type(name).__name__}")
    if len(name) > NAME_CHARACTERS:
        raise TooLarge(
            f"the name of a {what} has at most {NAME_CHARACTERS} characters, not {len(name)}", NAME_CHARACTERS
        )
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} cannot be the name of a {what}: letters, digits, '.', '_' and '-' make a name, "
            "and the first is a letter or a digit"
        )
    return name
