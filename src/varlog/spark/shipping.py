"""The package on its way to the executors of a cluster, for machines on which it is not installed."""

import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
"""The package."""


def ship(spark: SparkSession, folder: str | Path | None = None) -> Path:
    """Give this very package to all executors; returns the archive. They need its dependencies all the same.

    The archive is kept in `folder`, or else in a temporary one, as long as Spark may ask for it.
    """
    archive = Path(folder or tempfile.mkdtemp(prefix="varlog-ship-")) / "varlog.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(ROOT.rglob("*.py")):
            packed.write(path, Path("varlog") / path.relative_to(ROOT))
    spark.sparkContext.addPyFile(str(archive))
    return archive
