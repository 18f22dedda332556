"""The log as a Spark source and sink, for batches and for streams.

    from varlog.spark import VarlogDataSource
    spark.dataSource.register(VarlogDataSource)
    spark.read.format("varlog").option("cluster", url).option("log", "orders").load()

Needs the extra `varlog[spark]`. The names are loaded at their first use, so that looking for a Java costs no Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from varlog.spark.archive import archive_log
    from varlog.spark.frame import read
    from varlog.spark.session import local_session
    from varlog.spark.shipping import ship
    from varlog.spark.source import VarlogDataSource

__all__ = ["VarlogDataSource", "archive_log", "local_session", "read", "ship"]

# No module here has the name of one of these: once imported, it would stand in its place.
_HOMES = {
    "VarlogDataSource": "source",
    "archive_log": "archive",
    "local_session": "session",
    "read": "frame",
    "ship": "shipping",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'varlog.spark' has no attribute {name!r}")
    value: object = getattr(import_module(f"varlog.spark.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
