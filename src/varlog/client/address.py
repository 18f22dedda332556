"""Where a cluster is: `varlog://host:port[,host:port...]`."""

import re

from varlog.base.errors import InvalidArgument
from varlog.client.limits import REPOSITORIES

SCHEME = "varlog://"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/@?#\[\]]+):(?P<port>[0-9]{1,5})", re.ASCII)


def parse_url(url: object) -> list[str]:
    """The repository addresses of a URL, in its order, each as host:port."""
    if not isinstance(url, str):
        raise InvalidArgument(f"the address of a cluster is text, not {type(url).__name__}")
    if not url.startswith(SCHEME):
        raise InvalidArgument(
            f"{url!r} is not the address of a cluster: it begins with {SCHEME}, as in {SCHEME}127.0.0.1:7700"
        )
    addresses = [_checked(url, part) for part in url.removeprefix(SCHEME).removesuffix("/").split(",")]
    if len(addresses) > REPOSITORIES:
        raise InvalidArgument(f"a cluster has up to {REPOSITORIES} repositories, the address names {len(addresses)}")
    return list(dict.fromkeys(addresses))


def _checked(url: str, part: str) -> str:
    found = _ADDRESS.fullmatch(part.strip())
    if found is None:
        raise InvalidArgument(f"{url!r}: {part!r} is not host:port")
    if not 0 < int(found["port"]) < 1 << 16:
        raise InvalidArgument(f"{url!r}: {found['port']} is not a port")
    return found[0]
