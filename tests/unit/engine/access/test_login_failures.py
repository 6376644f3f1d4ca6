"""Failed logins wait longer each time, and no user is locked out."""

from millstream.engine.access.login_failures import ANYWHERE_FROM, LoginFailures


def failures(entries_max: int = 100) -> LoginFailures:
    return LoginFailures(first_ms=100, most_ms=10_000, entries_max=entries_max)


def test_the_wait_doubles_up_to_its_bound_and_a_success_resets_it() -> None:
    table = failures()

    waits = [table.failed("ann", "10.0.0.7") for _ in range(9)]
    table.succeeded("ann", "10.0.0.7")

    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert table.failed("ann", "10.0.0.7") == 100


def test_failures_from_many_addresses_make_all_of_them_wait_in_the_end() -> None:
    table = failures()

    waits = [table.failed("ann", f"10.0.0.{at}") for at in range(ANYWHERE_FROM + 3)]

    assert waits[:ANYWHERE_FROM] == [100] * ANYWHERE_FROM
    assert waits[ANYWHERE_FROM:] == [200, 400, 800]
    assert table.failed("bob", "10.0.0.1") == 100


def test_the_table_has_a_bound() -> None:
    table = failures(entries_max=10)

    for at in range(1_000):
        table.failed(f"user{at}", "10.0.0.7")

    assert len(table) <= 10
