"""What a storage node is told at its start."""

from dataclasses import dataclass

from varlog.base.errors import InvalidArgument
from varlog.transport.tcp import check_advertised, parse_address


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Each field with its meaning, unit and default."""

    repositories: tuple[str, ...]
    """Addresses of the metadata repositories, host:port."""
    listen: str = "127.0.0.1:0"
    """Where to serve; port 0 takes a free one."""
    advertise: str = ""
    """The address that others are given, if it is not that; port 0 stands for the port it serves at."""
    node_id: int = 0
    """Wanted id; 0: the one on disk or, on a new node, one the repository gives."""
    zone: str = ""
    """Failure zone, for placement."""
    file_bytes: int = 64 << 20
    """Size of a data file. A replica's first ones are smaller, from a sixteenth on."""

    copy_bytes_per_s: int = 256 << 20
    """Most bytes a second that all copies being made on this node take together."""

    scrub_bytes_per_s: int = 8 << 20
    """Most bytes a second that are read to look for rot."""

    scrub_every_s: float = 86_400.0
    """From the beginning of one look at everything to that of the next; 0: only when asked to."""

    def __post_init__(self) -> None:
        if not self.repositories:
            raise InvalidArgument("a storage node needs the address of a repository: --repository host:port")
        for address in self.repositories:
            parse_address(address)  # now, not at every attempt to reach it
        check_advertised(self.listen, self.advertise)
        if self.node_id < 0:
            raise InvalidArgument(f"a node id is a positive number, not {self.node_id}")
        if self.copy_bytes_per_s < 1 << 16:
            raise InvalidArgument(f"copy_bytes_per_s must be at least 64 KiB, not {self.copy_bytes_per_s}")
        if self.scrub_bytes_per_s < 1 << 16:
            raise InvalidArgument(f"scrub_bytes_per_s must be at least 64 KiB, not {self.scrub_bytes_per_s}")
        if not 0 <= self.scrub_every_s < 1e9:
            raise InvalidArgument(f"scrub_every_s must be a number of seconds, or 0 for never: {self.scrub_every_s}")
        if not 1 << 16 <= self.file_bytes <= 1 << 34:
            raise InvalidArgument(f"file_bytes must be between 64 KiB and 16 GiB, not {self.file_bytes}")
