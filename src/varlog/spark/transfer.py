"""Files into a log and a log into files: JSON lines, CSV and Parquet, each row an entry."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql

from varlog.base.errors import InvalidArgument
from varlog.spark.columns import WRITTEN
from varlog.spark.frame import Bound, read
from varlog.spark.limits import IMPORT_BYTES, TIMEOUT_SECONDS
from varlog.spark.source import VarlogDataSource

FORMATS = ("json", "csv", "parquet")

CUTS = {
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": str(IMPORT_BYTES),
    "spark.sql.files.openCostInBytes": str(IMPORT_BYTES // 8),
}
"""So files are cut into tasks by their sizes alone: Spark would else look at the number of its cores, and a task that
is repeated on another machine under the same identity would have other rows."""


CSV = {"header": "true", "escape": '"'}
"""As the world writes it: a quote in a value is doubled, and a backslash is one like any other."""
READ_CSV = {**CSV, "multiLine": "true", "nullValue": "\ufdd0"}
"""A value may have several lines; so a file is read by one task. An empty one in quotes is empty, and one without is
none: Spark tells them apart if none has another word than nothing, here a character that no text has."""
WRITTEN_CSV = {**CSV, "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""Spark would else take the blanks around every value away."""

NOT_TEXT = "INVALID_UTF8_STRING"


def format_of(path: str, given: str | None) -> str:
    """As given, or as the name of the file says."""
    form = given or {"jsonl": "json", "ndjson": "json"}.get(ending := path.rpartition(".")[2].lower(), ending)
    if form not in FORMATS:
        raise InvalidArgument(f"{path} could be anything: say which of {', '.join(FORMATS)} it is, with --format")
    return form


def rows_in(spark: SparkSession, path: str, form: str, key: str | None = None) -> DataFrame:
    """The rows of files as entries: payload, and key if a field or column is named for it.

    A line of JSON is taken as it is. A row of CSV or Parquet becomes an object of JSON, unless it has a column
    `payload`: then it is an entry already, with `key` and `headers` if there are such columns.
    """
    for name, value in CUTS.items():
        spark.conf.set(name, value)
    try:
        if form == "json":
            return _lines(spark, path, key)
        frame = spark.read.options(**READ_CSV).csv(path) if form == "csv" else spark.read.parquet(path)
    except PySparkException as error:
        raise InvalidArgument(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    if "payload" in frame.columns and key is None:
        return frame.select(*(name for name in frame.columns if name in WRITTEN))
    columns = [sql.to_json(sql.struct("*")).alias("payload")]
    if key is not None:
        if key not in frame.columns:
            raise InvalidArgument(f"{path} has no column {key!r}; its columns are {', '.join(frame.columns)}")
        columns.append(frame[key].cast("string").alias("key"))
    return frame.select(*columns)


def _lines(spark: SparkSession, path: str, key: str | None) -> DataFrame:
    lines = spark.read.text(path).where("value != ''").withColumnRenamed("value", "payload")
    if key is None:
        return lines
    return lines.withColumn("key", sql.get_json_object("payload", f"$.{key}"))


def import_rows(
    frame: DataFrame, url: str, log: str, identity: str | None = None, timeout: float = TIMEOUT_SECONDS
) -> int:
    """Append all rows; how many there were. Under an identity, those that are there already are not appended again."""
    counted, observed = _counted(frame)
    writer = counted.write.format(VarlogDataSource.name()).option("cluster", url).option("log", log)
    writer = writer.option("timeout", str(timeout))
    if identity is not None:
        writer = writer.option("identity", identity)
    writer.mode("append").save()
    return int(observed.get["rows"])


def export_rows(
    spark: SparkSession,
    url: str,
    log: str,
    start: Bound,
    stop: Bound | None,
    path: str,
    form: str,
    timeout: float = TIMEOUT_SECONDS,
) -> int:
    """Write a range into a folder, which must not be there yet; how many entries. What is no text fits Parquet only."""
    frame = read(spark, url, log, start, stop, timeout=timeout)
    if form != "parquet":
        texts = (f"validate_utf8(cast({name} AS string)) AS {name}" for name in ("key", "payload"))
        frame = frame.selectExpr("glsn", "stream", "slot", "time", *texts)
    counted, observed = _counted(frame)
    writer = counted.write.mode("errorifexists").options(**(WRITTEN_CSV if form == "csv" else {}))
    try:
        writer.format(form).save(path)
    except PySparkException as error:
        if NOT_TEXT in str(error):
            raise InvalidArgument(
                f"an entry of log {log!r} has a key or payload that is not text, and would be changed in {form}: "
                "export it as parquet"
            ) from error
        raise
    return int(observed.get["rows"])


def _counted(frame: DataFrame) -> tuple[DataFrame, Observation]:
    observed = Observation()
    return frame.observe(observed, sql.count(sql.lit(1)).alias("rows")), observed
