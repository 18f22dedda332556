"""What a store on etcd is told."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from varlog.base.errors import InvalidArgument

MAX_ENDPOINTS = 16
MAX_PREFIX_BYTES = 64
"""It is part of every key, and a transaction with cuts has some two thousand: they must not make it too large."""


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """Each field with its meaning, unit and default."""

    endpoints: tuple[str, ...]
    """host:port of the members, in the order in which they are tried. All of one etcd."""
    prefix: str = "varlog/"
    """Before every key: what makes one etcd serve several clusters, and other programs."""
    ca: str = ""
    """File with the authorities that members are checked against. Empty: no TLS."""
    certificate: str = ""
    """File with our own certificate, for an etcd that asks for one; with `key`."""
    key: str = ""
    """File with the private key of `certificate`."""
    connect_s: float = 1.0
    """How long one member is given to take a connection before the next is tried."""
    attempt_s: float = 2.0
    """How long one member is given to answer before the next is tried."""
    timeout_s: float = 5.0
    """How long a call may take with all its attempts. A commit may take as long again to learn its outcome."""
    lease_s: float = 2.0
    """How long a leader that is not heard of stays one. etcd's own least is 1.5 election timeouts, in whole seconds."""
    compact: bool = True
    """Give back the space of old revisions, of the whole etcd, as we write. Turn it off where others need them and
    etcd compacts by itself."""

    def __post_init__(self) -> None:
        if not 0 < len(self.endpoints) <= MAX_ENDPOINTS:
            raise InvalidArgument(f"an etcd has 1 to {MAX_ENDPOINTS} endpoints")
        for endpoint in self.endpoints:
            if not _is_endpoint(endpoint):
                raise InvalidArgument(f"{endpoint!r} is no endpoint of an etcd: host:port is")
        if not self.prefix or not self.prefix.isprintable():
            raise InvalidArgument("the prefix of the keys in etcd must be printable, and not empty")
        if len(self.prefix.encode()) > MAX_PREFIX_BYTES:
            raise InvalidArgument(f"the prefix of the keys in etcd has more than {MAX_PREFIX_BYTES} bytes")
        if bool(self.certificate) != bool(self.key) or (self.certificate and not self.ca):
            raise InvalidArgument("for TLS, give ca; and certificate and key both or neither")
        if not 0 < self.connect_s <= self.timeout_s or not 0 < self.attempt_s <= self.timeout_s:
            raise InvalidArgument("connect_s and attempt_s must be more than 0 and at most timeout_s")
        if self.lease_s < 1:
            raise InvalidArgument("lease_s must be at least 1")

    def read(self, path: str) -> bytes | None:
        """One of the files named above; None if it is not named."""
        try:
            return Path(path).read_bytes() if path else None
        except OSError as error:
            raise InvalidArgument(f"cannot read {path}: {error.strerror}") from error

    def check_files(self) -> None:
        """Raise `InvalidArgument` unless they hold what they should.

        gRPC would only find no connection; with an empty `ca` it would trust the authorities of the whole web.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self.ca)
        except OSError as error:
            raise InvalidArgument(f"{self.ca} is no file of authorities: {error}") from error
        try:
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            raise InvalidArgument(
                f"{self.certificate} and {self.key} are no certificate with its key: {error}"
            ) from error


def _is_endpoint(text: str) -> bool:
    """What is none, but could be taken for one, would be passed over for ever as a member that is away."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host.replace(":", "/")
    numbered = port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    return numbered and bool(bare) and "/" not in bare and not any(character.isspace() for character in bare)
