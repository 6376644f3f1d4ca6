"""kafkajs writes and relays in transactions."""

import pytest

from tests.interop.programs.transactions import Transactions
from tests.interop.samples import needs

pytestmark = [pytest.mark.interop, needs(22, 24, 25, 26, 28)]


class TestTransactions(Transactions): ...
