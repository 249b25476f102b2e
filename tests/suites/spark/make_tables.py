"""Converts CSV files to Parquet, to JSON, and to a catalog table with binary digests.

spark-submit make_tables.py CSV_FOLDER PARQUET_FOLDER JSON_FOLDER TABLE
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

csv, parquet, json, table = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.read.options(header=True, escape='"').csv(csv)
# A device without IDFA has no digest.
rows = rows.withColumn("digest", F.md5(F.concat("idfa", F.lit("-of-yesterday"))))
rows.repartition(3).write.parquet(parquet)
rows.repartition(2).write.json(json)
spark.sql(f"CREATE DATABASE IF NOT EXISTS {table.split('.')[0]}")
rows.withColumn("digest", F.unhex("digest")).write.saveAsTable(table)
