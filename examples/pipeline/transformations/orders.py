"""From the log `orders` to tables, and on to the log `large-orders`. Run by `spark-pipelines`: see ../README.md.

log orders ──▶ table placed ──▶ table per_user      what each user has spent so far
                    `─────────▶ log large-orders    as they come, each once
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct, sum, to_json

from varlog.spark.pipelines import register

CLUSTER = os.environ.get("VARLOG_CLUSTER", "varlog://127.0.0.1:7700")
ORDER = "user STRING, amount BIGINT"
LARGE = 900

spark = SparkSession.active()
register(spark)


@dp.table(comment="every order, once, with its position in the log")
def placed() -> DataFrame:
    entries = spark.readStream.format("varlog").option("cluster", CLUSTER).option("log", "orders").load()
    order = from_json(col("payload").cast("string"), ORDER)
    return entries.select("glsn", "time", order.alias("order")).select("glsn", "time", "order.*")


@dp.materialized_view(comment="what each user has spent")
def per_user() -> DataFrame:
    orders = spark.read.table("placed")
    return orders.groupBy("user").agg(count("*").alias("orders"), sum("amount").alias("amount"))


dp.create_sink("large", "varlog", {"cluster": CLUSTER, "log": "large-orders"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    orders = spark.readStream.table("placed").where(col("amount") >= LARGE)
    return orders.select(col("user").alias("key"), to_json(struct("glsn", "user", "amount")).alias("payload"))
