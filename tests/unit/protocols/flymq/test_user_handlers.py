"""Users, rights and the audit trail: what is said as long as there are none."""

from random import Random

import pytest

from millstream.protocols.flymq.router import HANDLERS
from millstream.protocols.flymq.wire import bodies, user_bodies
from millstream.protocols.flymq.wire.frames import OPERATIONS, Opcode
from tests.support.flymq import Refused
from tests.support.virtual_loop import run
from tests.unit.protocols.flymq.arbitrary import arbitrary
from tests.unit.protocols.flymq.asking import open_listener

REFUSED = {
    "authentication is not enabled": range(0x73, 0x7E),
    "the audit trail is not enabled: set audit.enabled, or have listeners with logins": range(
        0x80, 0x82
    ),
}


def test_every_opcode_has_a_handler() -> None:
    assert set(HANDLERS) == set(OPERATIONS)


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_is_not_there_is_refused_in_a_sentence(sentence: str) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()
            for number in REFUSED[sentence]:
                opcode = Opcode(number)
                for form in OPERATIONS[opcode].requests:
                    with pytest.raises(Refused, match=f"^{sentence}$"):
                        await client.ask(opcode, arbitrary(form, Random(number)), tuple)

    run(main())


def test_every_login_succeeds_as_the_anonymous_user() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = listener.connect()

            answer = await client.ask(
                Opcode.AUTH,
                user_bodies.Authenticate("ann", "secret"),
                user_bodies.Authenticated,
            )
            assert answer == (True, "ann", ("admin",), "")
            who = await client.ask(Opcode.WHOAMI, bodies.Nothing(), user_bodies.Identity)
            assert who == (False, "", (), ())

    run(main())
