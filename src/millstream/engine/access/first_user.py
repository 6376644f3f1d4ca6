"""Makes the administrator of a cluster that has no users.

The password is the operator's, or a random one in a file that only the operator can read. The file
is written first: a crash between the two leaves no user with a password that is not known.
"""

import logging
from base64 import urlsafe_b64encode

from millstream.config import Config
from millstream.engine.access.users import Users, create_first
from millstream.errors import StartupError
from millstream.ports import Ports
from millstream.storage.files.replacing import replace_file

_log = logging.getLogger(__name__)

PASSWORD_FILE = "initial-admin-password"
PASSWORD_RANDOM_BYTES = 18


async def make_first_user(users: Users, config: Config, ports: Ports) -> None:
    """Do nothing if there is a user; raise `StartupError` for a password that cannot be read."""
    if users.access.users:
        return
    security = config.security
    if security.admin_password:
        secret = await ports.threads.run(lambda: ports.secrets.read(security.admin_password))
        try:
            password = secret.decode()
        except UnicodeDecodeError:
            raise StartupError("security.admin_password is not UTF-8") from None
        where = security.admin_password.reference
    elif config.storage == "memory":
        raise StartupError(
            'with storage = "memory" there is no file for the password of the first user: set '
            "security.admin_password"
        )
    else:
        password = urlsafe_b64encode(ports.entropy.randbytes(PASSWORD_RANDOM_BYTES)).decode()
        data = f"{password}\n".encode()
        await ports.threads.run(lambda: replace_file(ports.files, PASSWORD_FILE, [data]))
        where = f"{config.data_dir}/{PASSWORD_FILE}"
    if await create_first(users, security.admin_user, password):
        _log.info("made the first user name=%s password_in=%s", security.admin_user, where)
