"""`client.log_levels`: how much each module of a broker logs, changed while it runs.

The loggers of Kafka's `BROKER_LOGGER` resource, which librdkafka does not offer.
"""

from typing import TYPE_CHECKING

from millstream.client.extensions.requests import BrokerRequests, refusal

if TYPE_CHECKING:
    from millstream.client.models import BrokerNode

BROKER_LOGGER = 8
_SET, _DELETE = 0, 1
_FEATURE = "log levels"


class LogLevels:
    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self, node: "BrokerNode") -> dict[str, str]:
        """The level that holds for each logger of the node, by the logger's name."""
        from millstream.kafka_wire.apis import configs

        resource = configs.DescribeConfigsRequest.Resource(
            resource_type=BROKER_LOGGER, resource_name=str(node.node_id)
        )
        answer = self._requests.ask(
            configs.DescribeConfigsRequest(resources=[resource]),
            configs.DescribeConfigsResponse,
            feature=_FEATURE,
            doing="list log levels",
        )
        (result,) = answer.results
        if result.error_code:
            raise refusal(result.error_code, result.error_message or "", "list log levels")
        return {config.name: config.value or "" for config in result.configs}

    def set(self, node: "BrokerNode", logger: str, level: str | None) -> None:
        """Change the level until the node stops; None: that of the logger above it."""
        from millstream.kafka_wire.apis import configs

        request = configs.IncrementalAlterConfigsRequest
        change = request.Resource.Config(
            name=logger, config_operation=_DELETE if level is None else _SET, value=level
        )
        resource = request.Resource(
            resource_type=BROKER_LOGGER, resource_name=str(node.node_id), configs=[change]
        )
        doing = f"set the level of {logger}"
        answer = self._requests.ask(
            request(resources=[resource]),
            configs.IncrementalAlterConfigsResponse,
            feature=_FEATURE,
            doing=doing,
        )
        (result,) = answer.responses
        if result.error_code:
            raise refusal(result.error_code, result.error_message or "", doing)
