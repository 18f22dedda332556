"""The source and sink in a declarative pipeline (`spark-pipelines`), where Spark 4.3 needs some help.

Whenever a Python data source was asked something, Spark's server hands the client what a profiler measured, also when
there is none. Of a pipeline's run it does so at the end, and the client takes that for an answer it does not
know, and fails, though all is done. `tests/spark/test_pipeline.py` notices when it does so no more.
"""

from collections.abc import Iterator
from typing import Any

from varlog.spark.source import VarlogDataSource

PROFILE = "__python_accumulator__"
"""What Spark calls it."""


def register(spark: Any) -> None:
    """Have a pipeline's session know `format("varlog")`; to be called by the files that define it."""
    spark.dataSource.register(VarlogDataSource)
    client = spark.client
    plain = client._execute_and_fetch_as_iterator

    def without_profiles(*arguments: Any, **named: Any) -> Iterator[Any]:
        for response in plain(*arguments, **named):
            if getattr(response, "name", None) != PROFILE:
                yield response

    client._execute_and_fetch_as_iterator = without_profiles
