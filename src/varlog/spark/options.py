"""What a user says of a source or sink, read and judged in one place, before anything is done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from varlog.base.errors import InvalidArgument
from varlog.base.names import check_name
from varlog.client.address import parse_url
from varlog.spark import limits

Position = int | datetime | str
"""A GLSN, a time, or one of the words in `WORDS`."""

WORDS = ("earliest", "latest")
SPARKS_OWN = ("checkpointlocation", "queryname", "path")
"""Options that Spark hands on although they are for itself."""


@dataclass(frozen=True, slots=True)
class Options:
    """Names are those of the options in camelCase, defaults those of docs/spark.md."""

    cluster: str
    log: str
    start: Position = "earliest"
    stop: Position | None = None
    stream: int | None = None
    columns: tuple[str, ...] | None = None
    batch_rows: int = limits.BATCH_ROWS
    partition_bytes: int = limits.PARTITION_BYTES
    min_partitions: int = 1
    max_entries_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    identity: str | None = None
    zone: str = ""
    timeout: float = limits.TIMEOUT_SECONDS


def parse_options(given: Mapping[str, str]) -> Options:
    """Raises `InvalidArgument` for what is missing, unknown or makes no sense."""
    told = {name.lower(): value for name, value in given.items() if name.lower() not in SPARKS_OWN}
    for name in told:
        if name not in _KINDS:
            known = ", ".join(camel(each.name) for each in fields(Options))
            raise InvalidArgument(f"there is no option {name!r}; the options are {known}")
    for name in ("cluster", "log"):
        if not told.get(name):
            raise InvalidArgument(f'the option {name!r} is missing: .option("{name}", ...)')
    values: dict[str, Any] = {}
    for name, text in told.items():
        field, kind = _KINDS[name]
        values[field] = kind(camel(field), text)
    return Options(**values)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# ---------------------------------------------------------------- kinds


def _cluster(name: str, text: str) -> str:
    parse_url(text)
    return text


def _log(name: str, text: str) -> str:
    return check_name(text)


def _identity(name: str, text: str) -> str:
    return check_name(text, name)


def _zone(name: str, text: str) -> str:
    return text.strip()


def _whole(least: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number < 1 << 63:
            raise InvalidArgument(f"the option {name!r} is a whole number from {least} on, not {text!r}")
        return number

    return parse


def _seconds(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise InvalidArgument(f"the option {name!r} is a positive number of seconds, not {text!r}")
    return number


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidArgument(f"the option {name!r} is true or false, not {text!r}")
    return text.lower() == "true"


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_position(name: str, text: str) -> Position:
    """A GLSN, a time with its zone, or a word."""
    told = text.strip()
    if told.lower() in WORDS:
        return told.lower()
    if told.lstrip("+-").isdigit():
        return _whole(1)(name, told)
    try:
        time = datetime.fromisoformat(told)
    except ValueError:
        raise InvalidArgument(
            f"the option {name!r} is a position (1, 2, ...), 'earliest', 'latest' or a time as in "
            f"2026-01-31T12:00:00+00:00, not {text!r}"
        ) from None
    if time.tzinfo is None:
        raise InvalidArgument(f"the time {text!r} of the option {name!r} needs a zone, as in {told}+00:00")
    return time


_KINDS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    camel(field).lower(): (field, kind)
    for field, kind in {
        "cluster": _cluster,
        "log": _log,
        "start": parse_position,
        "stop": parse_position,
        "stream": _whole(1),
        "columns": _names,
        "batch_rows": _whole(1),
        "partition_bytes": _whole(1),
        "min_partitions": _whole(1),
        "max_entries_per_trigger": _whole(1),
        "fail_on_data_loss": _truth,
        "identity": _identity,
        "zone": _zone,
        "timeout": _seconds,
    }.items()
}
"""By the name in small letters, as Spark hands it on: the field, and how its text is read."""
