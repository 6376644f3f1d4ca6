"""`client.encryption`: the state of encryption at rest, new keys, and old records sealed anew."""

from dataclasses import dataclass
from typing import Literal

from millstream.client.extensions.requests import BrokerRequests

_ACTIONS = {"data": 0, "root": 1, "master": 2}
_REWRITE, _REQUIRE, _LIFT = 3, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKey:
    """A data key of a topic, and how many bytes of records it has sealed."""

    id: int
    topic: str
    made_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionReport:
    mode: str
    key_name: str
    check: str
    is_root_due: bool
    clear_bytes: int
    rewriting_count: int
    keys: tuple[EncryptionKey, ...]
    is_required: bool


class EncryptionAdmin:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def describe(self) -> EncryptionReport:
        """Mode, root key and data keys, with the bytes that each has sealed."""
        from millstream.kafka_wire.apis import rights

        answer = self._requests.call(
            rights.DescribeEncryptionRequest(),
            rights.DescribeEncryptionResponse,
            feature="encryption at rest",
            doing="look at encryption",
        )
        return EncryptionReport(
            mode=answer.mode,
            key_name=answer.key_name,
            check=answer.check,
            is_root_due=answer.is_root_due,
            clear_bytes=answer.clear_bytes,
            rewriting_count=answer.rewriting_count,
            keys=tuple(
                EncryptionKey(
                    id=key.id, topic=key.topic, made_ms=key.made_ms, size_bytes=key.size_bytes
                )
                for key in answer.keys
            ),
            is_required=answer.is_required,
        )

    def rotate(self, keys: Literal["data", "root", "master"] = "data") -> int:
        """Make new keys; returns how many data keys are new or wrapped anew."""
        return self._alter(_ACTIONS[keys], "rotate keys")

    def rewrite(self) -> int:
        """Seal old records with the keys of today, in the background; returns how many logs."""
        return self._alter(_REWRITE, "seal old records anew")

    def require(self, *, is_required: bool = True) -> None:
        """Have only nodes that encrypt what they write in the cluster, or lift that."""
        self._alter(_REQUIRE if is_required else _LIFT, "require encryption")

    def _alter(self, action: int, doing: str) -> int:
        from millstream.kafka_wire.apis import rights

        answer = self._requests.call(
            rights.AlterEncryptionRequest(action=action),
            rights.AlterEncryptionResponse,
            feature="encryption at rest",
            doing=doing,
        )
        return answer.count
