"""Tables of settings and quotas: DescribeConfigs, two ways to alter them, client quotas."""

from typing import Annotated

from millstream.kafka_wire.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    Since,
    String,
    empty,
)


class DescribeConfigsRequest(Message, kw_only=True):
    class Resource(Message, kw_only=True):
        resource_type: Int8
        resource_name: String
        configuration_keys: list[String] | None = None

    resources: list[Resource]
    include_synonyms: Annotated[Bool, Since(1)] = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        class Config(Message, kw_only=True):
            class Synonym(Message, kw_only=True):
                name: String
                value: String | None
                source: Int8

            name: String
            value: String | None
            read_only: Bool
            config_source: Annotated[Int8, Since(1)] = -1
            is_sensitive: Bool
            synonyms: Annotated[list[Synonym], Since(1)] = empty()
            config_type: Annotated[Int8, Since(3)] = 0
            documentation: Annotated[String | None, Since(3)] = None

        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
        configs: list[Config]

    throttle_time_ms: Int32 = 0
    results: list[Result]


class AlterConfigsRequest(Message, kw_only=True):
    class Resource(Message, kw_only=True):
        class Config(Message, kw_only=True):
            name: String
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Bool = False


class AlterConfigsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[Result]


class IncrementalAlterConfigsRequest(Message, kw_only=True):
    class Resource(Message, kw_only=True):
        class Config(Message, kw_only=True):
            name: String
            config_operation: Int8
            value: String | None

        resource_type: Int8
        resource_name: String
        configs: list[Config]

    resources: list[Resource]
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(Message, kw_only=True):
    class Result(Message, kw_only=True):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[Result]


class ListConfigResourcesRequest(Message, kw_only=True):
    resource_types: Annotated[list[Int8], Since(1)] = empty()


class ListConfigResourcesResponse(Message, kw_only=True):
    class Resource(Message, kw_only=True):
        resource_name: String
        resource_type: Annotated[Int8, Since(1)] = 16

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[Resource]


class QuotaEntity(Message, kw_only=True):
    """One coordinate of what a quota is for: a user, a client id or an address."""

    entity_type: String
    entity_name: String | None


class DescribeClientQuotasRequest(Message, kw_only=True):
    class Component(Message, kw_only=True):
        entity_type: String
        match_type: Int8
        match: String | None

    components: list[Component]
    strict: Bool


class DescribeClientQuotasResponse(Message, kw_only=True):
    class Entry(Message, kw_only=True):
        class Value(Message, kw_only=True):
            key: String
            value: Float64

        entity: list[QuotaEntity]
        values: list[Value]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    entries: list[Entry] | None


class AlterClientQuotasRequest(Message, kw_only=True):
    class Entry(Message, kw_only=True):
        class Operation(Message, kw_only=True):
            key: String
            value: Float64
            remove: Bool

        entity: list[QuotaEntity]
        ops: list[Operation]

    entries: list[Entry]
    validate_only: Bool = False


class AlterClientQuotasResponse(Message, kw_only=True):
    class Entry(Message, kw_only=True):
        error_code: Int16 = 0
        error_message: String | None = None
        entity: list[QuotaEntity]

    throttle_time_ms: Int32 = 0
    entries: list[Entry]
