"""Options mean what they mean in Spark's Kafka connector; a mistake is one clear sentence."""

import pytest

from millstream.kafka_client.settings import FETCH_BYTES, Credentials, Tls
from millstream.model import Isolation, TopicPartition
from millstream.spark.errors import InvalidOption
from millstream.spark.options.places import (
    EARLIEST,
    LATEST,
    Assigned,
    AtTime,
    AtTimes,
    Committed,
    Everywhere,
    Pattern,
    Specific,
    Topics,
)
from millstream.spark.options.source import (
    RECORDS_PER_TASK_MIN,
    OnError,
    SourceOptions,
    includes_headers,
    source_options,
    value_format,
)
from millstream.spark.options.subjects import Subjects
from millstream.spark.options.values import ValueFormat, ValueOptions

NEEDED = {"kafka.bootstrap.servers": "a:9092", "subscribe": "orders"}
JSON = {"valueFormat": "json", "valueSchema": "id int"}
T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(**options: str) -> SourceOptions:
    return source_options(NEEDED | options, is_streaming=False)


def stream(**options: str) -> SourceOptions:
    return source_options(NEEDED | options, is_streaming=True)


def with_kafka(**options: str) -> SourceOptions:
    """Options named with `_` for `.`, behind `kafka.`."""
    return batch(**{f"kafka.{name.replace('_', '.')}": text for name, text in options.items()})


def test_a_batch_reads_from_the_earliest_to_the_latest() -> None:
    options = batch()

    assert (options.starting, options.ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert options.fails_on_data_loss
    assert options.client.isolation is Isolation.READ_COMMITTED
    assert options.client.fetch_bytes == FETCH_BYTES
    assert options.subscription == Topics(("orders",))
    assert options.group.startswith("spark-kafka-relation-")


def test_a_stream_begins_at_the_latest() -> None:
    options = stream()

    assert options.starting == Everywhere(LATEST)
    assert options.trigger_delay_ms_max == 15 * 60 * 1000
    assert options.group.startswith("spark-kafka-source-")


def test_names_and_words_are_read_in_any_case() -> None:
    options = batch(STARTINGOFFSETS="Earliest", failondataloss="FALSE", MinPartitions="7")

    assert options.starting == Everywhere(EARLIEST)
    assert not options.fails_on_data_loss
    assert options.partitions_min == 7


def test_topics_are_named_in_four_ways() -> None:
    server = {"kafka.bootstrap.servers": "a:9092"}

    def subscription(**option: str) -> object:
        return source_options(server | option, is_streaming=False).subscription

    assert subscription(subscribe=" a, b,a ") == Topics(("a", "b"))
    assert subscription(subscribePattern="or.*") == Pattern("or.*")
    assert subscription(assign='{"orders": [1, 0]}') == Assigned((T0, T1))
    assert subscription(subscribeSubjects="a.*, b.>") == Subjects(("a.*", "b.>"))
    assert Pattern("or.*").matches("orders")
    assert not Pattern("or").matches("orders")


def test_subjects_are_a_filter_of_the_broker_besides_the_users_own() -> None:
    server = {"kafka.bootstrap.servers": "a:9092", "subscribeSubjects": "a.b"}

    plain = source_options(server, is_streaming=False)
    both = source_options(server | {"brokerFilter": "key"}, is_streaming=False)

    assert plain.broker_filter == "subject == 'a.b'"
    assert both.broker_filter == "(subject == 'a.b') and (key)"
    assert batch(brokerFilter="key").broker_filter == "key"


def test_places_are_named_in_five_ways() -> None:
    offsets = '{"orders": {"0": 23, "1": -2}}'

    assert batch(startingOffsets=offsets).starting == Specific({T0: 23, T1: EARLIEST})
    assert batch(startingTimestamp="1000").starting == AtTime(1000)
    times = '{"orders": {"0": 5, "1": 6}}'
    assert batch(startingOffsetsByTimestamp=times).starting == AtTimes({T0: 5, T1: 6})
    assert stream(startingOffsets="latest").starting == Everywhere(LATEST)
    options = stream(startingOffsets="committed", **{"kafka.group.id": "g"})
    assert (options.starting, options.group) == (Committed(EARLIEST), "g")


def test_a_time_beats_times_and_times_beat_offsets() -> None:
    times = '{"orders": {"0": 5}}'

    both = batch(startingTimestamp="7", startingOffsetsByTimestamp=times, startingOffsets="{}")
    assert both.starting == AtTime(7)
    assert batch(startingOffsetsByTimestamp=times, startingOffsets="{}").starting == AtTimes(
        {T0: 5}
    )
    assert batch(endingTimestamp="7", endingOffsetsByTimestamp=times).ending == AtTime(7)


def test_the_group_has_the_given_prefix_and_lasts() -> None:
    first = stream(groupIdPrefix="mine", **{"kafka.client.id": "x"})

    assert first.group.startswith("mine-")
    assert first.group == stream(groupIdPrefix="mine", **{"kafka.client.id": "y"}).group
    assert first.group != stream(groupIdPrefix="mine", subscribe="others").group


def test_the_group_is_named_by_what_is_read_alone() -> None:
    first = stream(subscribe="a,b", maxOffsetsPerTrigger="5").group

    assert first == stream(subscribe=" b, a", **JSON, includeHeaders="true").group
    assert first == stream(subscribe="a,b", startingOffsets="earliest").group
    assert first != stream(subscribe="a").group
    assert first != stream(subscribe="a,b", brokerFilter="key").group


def test_dead_letters_are_remembered_by_schema_and_where_they_were_before() -> None:
    options = {"onError": "dlq", "maxOffsetsPerTrigger": "5"}
    memory, former = stream(**JSON, **options).letter_groups

    assert memory == stream(**JSON, onError="dlq").letter_groups[0]
    assert memory != stream(**JSON | {"valueSchema": "id bigint"}, **options).letter_groups[0]
    # As the version before named it, from all of these options.
    assert former == "spark-kafka-source-b8d95d78eefb.dlq"
    assert stream(**JSON, **options, **{"kafka.group.id": "g"}).letter_groups == ("g.dlq",)


def test_a_setting_that_resembles_none_is_not_guessed_at() -> None:
    for name in ("queue.buffering", "statistics.interval", "sasl.kerberos.service.name"):
        with pytest.raises(InvalidOption) as problem:
            batch(**{f"kafka.{name}": "5"})
        assert "did you mean" not in str(problem.value)
    with pytest.raises(InvalidOption, match=r"did you mean kafka\.sasl\.password\?"):
        batch(**{"kafka.sasl.pasword": "5"})


def test_durations_have_units() -> None:
    options = stream(minOffsetsPerTrigger="10", maxTriggerDelay="90s")

    assert (options.offsets_min, options.trigger_delay_ms_max) == (10, 90_000)


def test_what_is_known_before_the_kind_of_query_is() -> None:
    assert includes_headers({"INCLUDEHEADERS": "True"})
    assert not includes_headers({})
    json_format = value_format({"valueFormat": "JSON", "valueSchema": "id int"})
    assert json_format == ValueOptions(form=ValueFormat.JSON, schema="id int")
    assert batch(valueFormat="json", valueSchema="id int", onError="null").on_error is OnError.NULL
    assert batch(**JSON, onError="dlq").on_error is OnError.DLQ


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": ""}, "subscribe is '', expected topics"),
        ({"subscribePattern": "a"}, "only one may be used: subscribe, subscribePattern, assign"),
        ({"startingOffset": "latest"}, "no option startingoffset; did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "can't be latest for batch queries"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "can't be latest for batch queries"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "an offset below -2"),
        ({"startingOffsets": '{"orders": [0]}'}, "expected earliest, latest or"),
        ({"startingOffsets": "yesterday"}, "expected earliest, latest or"),
        ({"startingOffsets": "committed"}, "name the group with kafka.group.id"),
        ({"startingOffsetsFallback": "latest"}, "means nothing unless startingOffsets=committed"),
        ({"startingTimestamp": "soon"}, "expected milliseconds since 1970"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "can't be earliest"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "expected one of error, latest"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe', expected one of true, false"),
        ({"minPartitions": "0"}, "minPartitions is 0, it must be positive"),
        ({"maxRecordsPerPartition": "x"}, "expected a whole number"),
        ({"minRecordsPerPartition": "5"}, "only for streaming queries"),
        ({"maxOffsetsPerTrigger": "5"}, "only for streaming queries"),
        ({"brokerFilter": " "}, "brokerFilter is empty"),
        ({"subscribeSubjects": "a.*"}, "only one may be used"),
        ({"path": "orders"}, "a topic is no path"),
        ({"group.id": "x"}, "use kafka.group.id or groupIdPrefix"),
        ({"valueFormat": "xml"}, "valueFormat is 'xml', expected one of json, avro, protobuf"),
        ({"valueFormat": "avro"}, "valueFormat avro needs valueSchema, for example the JSON"),
        (
            {"valueFormat": "protobuf", "valueSchema": "f"},
            "valueFormat protobuf needs valueMessage",
        ),
        ({**JSON, "valueMessage": "m"}, "valueMessage means nothing with valueFormat json"),
        ({"valueMessage": "m"}, "valueMessage means nothing without valueFormat"),
        ({"onError": "dlq"}, "onError means nothing without valueFormat"),
        ({**JSON, "onError": "drop"}, "onError is 'drop', expected one of fail, null, dlq"),
        ({**JSON, "onError": "dlq", "minPartitions": "4"}, "dlq can't be used with minPartitions"),
        ({"schemaRegistryUrl": "http://r"}, "schemaRegistryUrl means nothing without valueFormat"),
        ({**JSON, "schemaRegistryUrl": "r:8081"}, "expected http://host:port"),
        ({**JSON, "valueSubject": "s"}, "valueSubject means nothing without schemaRegistryUrl"),
        (
            {**JSON, "schemaRegistryUrl": "http://r", "valueSchemaVersion": "0"},
            "expected latest or a number",
        ),
        ({"onError": "null"}, "onError means nothing without valueFormat"),
        ({"kafka.auto.offset.reset": "x"}, "is said by startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "Spark decides when offsets are committed"),
        ({"kafka.key.deserializer": "x"}, "keys are bytes"),
        ({"kafka.interceptor.classes": "x"}, "interceptors are Java classes"),
        ({"kafka.sesion.timeout.ms": "5"}, "did you mean kafka.session.timeout.ms?"),
        ({"kafka.isolation.level": "x"}, "expected one of read_uncommitted, read_committed"),
        ({"kafka.security.protocol": "X"}, "expected one of PLAINTEXT, SSL"),
        ({"kafka.ssl.ca.location": "x"}, "is not SSL or SASL_SSL"),
        ({"kafka.sasl.username": "x"}, "is not SASL_"),
        ({"kafka.bootstrap.servers": "a"}, "has 'a', expected host:port"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers must be specified"),
    ],
)
def test_a_mistake_in_a_batch_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidOption) as problem:
        source_options(NEEDED | options, is_streaming=False)

    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not supported in streaming queries"),
        ({"endingTimestamp": "5"}, "endingTimestamp is not supported in streaming queries"),
        ({"maxTriggerDelay": "5m"}, "means nothing without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"}, "expected a time such as 15m"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than maxOffsetsPer"),
        ({"maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger is -1, it must be positive"),
    ],
)
def test_a_mistake_in_a_stream_is_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        source_options(NEEDED | options, is_streaming=True)


def test_no_topic_at_all_is_a_mistake() -> None:
    with pytest.raises(InvalidOption, match="one of these options must be specified"):
        source_options({"kafka.bootstrap.servers": "a:9092"}, is_streaming=False)


def test_brokers_may_be_many_and_addressed_in_any_way() -> None:
    options = with_kafka(bootstrap_servers="a:1, PLAINTEXT://b:2,[::1]:3")

    assert options.client.bootstrap == (("a", 1), ("b", 2), ("::1", 3))


def test_limits_of_the_client_are_kafkas() -> None:
    client = with_kafka(
        max_partition_fetch_bytes="1000", request_timeout_ms="5", default_api_timeout_ms="6"
    ).client

    assert (client.fetch_bytes, client.request_ms_max, client.patience_ms) == (1000, 5, 6)


def test_tls_takes_pem_files() -> None:
    client = with_kafka(
        security_protocol="ssl",
        ssl_truststore_location="ca.pem",
        ssl_keystore_location="me.pem",
        ssl_key_password="secret",
        ssl_endpoint_identification_algorithm="",
    ).client

    assert client.tls == Tls(
        ca_file="ca.pem",
        certificate_file="me.pem",
        key_password="secret",
        checks_hostname=False,
    )
    assert "secret" not in repr(client)


@pytest.mark.parametrize("name", ["ssl_truststore_type", "ssl_keystore_type"])
def test_java_key_stores_are_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="only PEM"):
        with_kafka(security_protocol="SSL", **{name: "JKS"})
    with pytest.raises(InvalidOption, match="only PEM"):
        with_kafka(security_protocol="SSL", ssl_truststore_location="trust.jks")


def test_a_password_is_found_in_jaas() -> None:
    jaas = 'org.apache.kafka.PlainLoginModule required username="me" password="a\\"b";'
    client = with_kafka(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=jaas
    ).client

    assert client.credentials == Credentials(username="me", password='a"b')
    assert 'a"b' not in repr(client)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_takes_a_user_and_a_password(mechanism: str) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_username": "me", "sasl_password": "secret"}

    client = with_kafka(security_protocol="SASL_SSL", **login).client

    assert client.credentials == Credentials(username="me", password="secret", mechanism=mechanism)


def test_other_mechanisms_are_refused_with_those_that_are_supported() -> None:
    with pytest.raises(InvalidOption, match="'GSSAPI'; supported are PLAIN, SCRAM-SHA-256"):
        with_kafka(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        with pytest.raises(InvalidOption, match=rf"{mechanism} needs kafka\.sasl\.username"):
            with_kafka(security_protocol="SASL_SSL", sasl_mechanism=mechanism)


def test_a_filter_for_the_broker_is_taken_as_it_stands() -> None:
    assert batch().broker_filter is None
    assert stream(brokerFilter="value ~ 'ERROR'").broker_filter == "value ~ 'ERROR'"
    assert batch(brokerFilter="key").group != batch(brokerFilter="value").group


def test_small_ranges_of_a_stream_share_tasks_unless_ranges_are_cut() -> None:
    def least(**more: str) -> int:
        options = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders", **more}
        return source_options(options, is_streaming=True).partition_records_min

    assert (least(), least(minRecordsPerPartition="7")) == (RECORDS_PER_TASK_MIN, 7)
    assert least(minPartitions="3") == 1
    with pytest.raises(InvalidOption, match="can't be used with minPartitions"):
        least(minPartitions="3", minRecordsPerPartition="7")
