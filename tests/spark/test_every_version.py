"""The newest Spark does what the table of versions says; `make interop` has the others."""

import sys
from pathlib import Path

from tests.spark.versions import check_table, run_queries
from tests.support.broker_process import BrokerProcess


def test_the_newest_spark_does_what_the_table_says(broker: BrokerProcess, tmp_path: Path) -> None:
    check_table(run_queries(Path(sys.executable), broker.address, tmp_path))
