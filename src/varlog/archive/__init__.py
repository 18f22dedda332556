"""Archives: the oldest entries of logs as Iceberg tables of Parquet files, in a folder or on S3, without Spark.

    place.py     where an archive is, and how its files are reached
    synced.py    its metadata in a folder: on the disk before anything names it
    table.py     the Iceberg table: made, judged, swapped
    files.py     the files of a snapshot: which of them hold a position or a time, and what is in them
    batches.py   rows of files as the batches that readers of a log get
    reader.py    all of that for the event loop, on threads of its own

pyarrow and pyiceberg are the extra `varlog[archive]`; nothing here loads them before an archive is used.
"""
