"""How a bug is planted, by what name it is found, and in which weather it can show."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from varlog.base.errors import InvalidArgument
from varlog.sim.weather import Weather


@dataclass(frozen=True, slots=True)
class Bug:
    """What is wrong, in words, and how it is done."""

    description: str
    plant: Callable[[], AbstractContextManager[None]]
    shows: Callable[[Weather], bool]
    """Whether a seed with this weather can show it at all."""


BUGS: dict[str, Bug] = {}


def find(name: str) -> Bug:
    if name not in BUGS:
        raise InvalidArgument(f"there is no planted bug {name!r}; known are {', '.join(sorted(BUGS))}")
    return BUGS[name]


def planted(name: str) -> AbstractContextManager[None]:
    """The named bug, for as long as the context lasts."""
    return find(name).plant()


def bug(
    description: str, shows: Callable[[Weather], bool] = lambda _: True
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a generator function, named after the bug, as a context manager."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        BUGS[plant.__name__] = Bug(description, contextmanager(plant), shows)
        return plant

    return register


@contextmanager
def swap(owner: Any, **members: Any) -> Iterator[None]:
    """Members of a class or module are others for a while."""
    with ExitStack() as stack:
        for name, other in members.items():
            before = vars(owner)[name]
            setattr(owner, name, other)
            stack.callback(setattr, owner, name, before)
        yield


def loses_power(weather: Weather, replicas: int) -> bool:
    faults = weather.faults
    return faults.power_loss > 0 and faults.node_crashes + faults.snipes > 0 and weather.shape.replicas >= replicas


def under_cut(shows: Callable[[Weather], bool] = lambda _: True) -> Callable[[Weather], bool]:
    """In weather in which it can show, for what is done under `cut` alone: logs that begin so."""
    return lambda weather: weather.shape.ordering == "cut" and shows(weather)


def overlapping_cuts_are_cut_off(weather: Weather) -> bool:
    """Several cuts are under way at once, of several streams, and leaders lose the lead."""
    faults, shape = weather.faults, weather.shape
    ends = faults.repository_crashes + faults.failing_commits + faults.snipes + faults.outages > 0
    return ends and shape.shared_store and shape.streams * shape.logs > 1
