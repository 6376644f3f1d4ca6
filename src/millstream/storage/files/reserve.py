"""Space set aside on the disk, so that a node can start when there is none left.

Owns one file of zeros. Votes and epochs must be written before anything can be served; when the
disk is full they take the place of the reserve, and it is set aside again when there is room.
"""

import logging

from millstream.ports import Files

RESERVE = "reserve"
RESERVE_BYTES = 2**20
PROBE = "probe"
PROBE_BYTES = 2**20

_log = logging.getLogger(__name__)


class Reserve:
    def __init__(self, files: Files) -> None:
        self._files = files
        self.is_kept = True

    def keep(self) -> None:
        """Set the space aside, if there is any. Blocks for a write."""
        try:
            file = self._files.open(RESERVE, create=True)
            if file.size() < RESERVE_BYTES:
                file.write(0, [bytes(RESERVE_BYTES)])
                file.sync()
            file.close()
            self.is_kept = True
        except OSError as problem:
            _log.warning("could not set space aside problem=%s", problem)
            self._remove()

    def release(self) -> bool:
        """Give the space back; False if there was none."""
        if not self._files.exists(RESERVE) or not self._remove():
            return False
        _log.warning("disk full: gave back the space that was set aside for starting")
        return True

    def _remove(self) -> bool:
        self.is_kept = False
        try:
            self._files.remove(RESERVE)
        except OSError as problem:
            _log.warning("could not give space back problem=%s", problem)
            return False
        return True


def has_space(files: Files) -> bool:
    """Whether some space can be written and given back. Blocks for a write."""
    try:
        file = files.open(PROBE, create=True)
        try:
            file.write(0, [bytes(PROBE_BYTES)])
        finally:
            file.close()
            files.remove(PROBE)
    except OSError:
        return False
    return True
