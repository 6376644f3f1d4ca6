"""The source in a real Spark, against a real broker process.

One JVM serves all of these tests, so under xdist they run in one group, in one worker.
"""
