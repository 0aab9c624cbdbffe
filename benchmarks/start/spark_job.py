"""ETL of the digits by hand: parse, split by a hash, write Parquet.

spark-submit benchmarks/start/spark_job.py FOLDER
"""

import sys
from importlib.resources import files

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(folder: str) -> None:
    spark = SparkSession.builder.appName("digits").getOrCreate()
    lines = spark.read.text(f"file://{files('sklearn.datasets.data') / 'digits.csv.gz'}")
    cells = lines.select(F.split("value", ",").cast("array<int>").alias("cells"), F.xxhash64("value").alias("hash"))
    share = F.pmod("hash", F.lit(100))
    split = F.when(share < 70, "train").when(share < 85, "validation").otherwise("test")
    rows = cells.select(F.slice("cells", 1, 64).alias("image"), F.get("cells", F.lit(64)).alias("label"), split.alias("split"), "hash")
    rows.repartition("split").sortWithinPartitions("hash").drop("hash").write.partitionBy("split").parquet(folder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
