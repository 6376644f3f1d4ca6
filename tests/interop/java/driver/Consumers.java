package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers: records the other way, positions, and what a group gives and takes. */
final class Consumers {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration DRAIN_MAX = Duration.ofSeconds(30);

    private final Handles<Reader> readers = new Handles<>();

    Consumers(Map<String, Main.Verb> verbs) {
        verbs.put("consumer.open", request -> {
            readers.add(request, new Reader(request));
            return null;
        });
        verbs.put("consumer.subscribe", request -> readers.of(request).subscribe(request));
        verbs.put("consumer.assign", request -> readers.of(request).assign(request));
        verbs.put("consumer.poll", request -> readers.of(request).poll(request));
        verbs.put("consumer.drain", request -> readers.of(request).drain(request));
        verbs.put("consumer.seek", request -> readers.of(request).seek(request));
        verbs.put("consumer.offsets_for_time", request -> readers.of(request).forTime(request));
        verbs.put("consumer.ends", request -> readers.of(request).ends(request));
        verbs.put("consumer.commit", request -> readers.of(request).commit(request));
        verbs.put("consumer.committed", request -> readers.of(request).committed(request));
        verbs.put("consumer.close", request -> {
            Reader reader = readers.of(request);
            readers.close(request);
            return reader.events();
        });
    }

    ConsumerGroupMetadata groupMetadata(String name) {
        return readers.named(name).consumer.groupMetadata();
    }

    /** A consumer that remembers what its group gave and took until somebody asks. */
    private static final class Reader implements AutoCloseable, ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String address;
        private final boolean commitsWhenRevoked;
        private List<Object> events = new ArrayList<>();

        Reader(Request request) {
            address = request.text("config.bootstrap.servers");
            commitsWhenRevoked = request.has("commits_when_revoked");
            consumer = new KafkaConsumer<>(
                    request.settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        Object subscribe(Request request) throws ReflectiveOperationException {
            if (request.has("broker_pattern")) {
                subscribeByBroker(request.text("broker_pattern"));
            } else if (request.has("pattern")) {
                consumer.subscribe(Pattern.compile(request.text("pattern")), this);
            } else {
                consumer.subscribe(request.all("topic"), this);
            }
            return null;
        }

        /** A pattern that the broker matches: the class that says so came with 4.0. */
        private void subscribeByBroker(String pattern) throws ReflectiveOperationException {
            Class<?> type = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class
                    .getMethod("subscribe", type, ConsumerRebalanceListener.class)
                    .invoke(consumer, type.getConstructor(String.class).newInstance(pattern), this);
        }

        Object assign(Request request) {
            consumer.assign(request.partitions());
            if (request.has("from_beginning")) {
                consumer.seekToBeginning(request.partitions());
            }
            return null;
        }

        /** Polls until `count` records came or `ms` passed, whichever is first. */
        Object poll(Request request) {
            long end = System.nanoTime() + Duration.ofMillis(request.large("ms")).toNanos();
            List<Object> records = new ArrayList<>();
            do {
                consumer.poll(POLL).forEach(one -> records.add(written(one)));
            } while (records.size() < request.number("count") && System.nanoTime() < end);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("records", records);
            answer.put("events", events());
            return answer;
        }

        /** All there is now in what is assigned, waiting for transactions that are being ended. */
        Object drain(Request request) {
            long deadline = System.nanoTime() + DRAIN_MAX.toNanos();
            Map<TopicPartition, Long> ends = writtenEnds();
            List<Object> records = new ArrayList<>();
            while (ends.entrySet().stream()
                    .anyMatch(one -> consumer.position(one.getKey()) < one.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the end is " + ends + " and was not reached");
                }
                consumer.poll(POLL).forEach(one -> records.add(written(one)));
            }
            return records;
        }

        /** The ends that a consumer of everything sees: a commit is answered before it is seen. */
        private Map<TopicPartition, Long> writtenEnds() {
            Properties everything = new Properties();
            everything.put("bootstrap.servers", address);
            try (KafkaConsumer<byte[], byte[]> other = new KafkaConsumer<>(
                    everything, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                return other.endOffsets(consumer.assignment());
            }
        }

        Object seek(Request request) {
            request.partitions().forEach(one -> consumer.seek(one, request.large("offset")));
            return null;
        }

        Object forTime(Request request) {
            Map<TopicPartition, Long> asked = new HashMap<>();
            request.partitions().forEach(one -> asked.put(one, request.large("timestamp")));
            return consumer.offsetsForTimes(asked).values().stream()
                    .map(one -> one == null ? -1 : one.offset())
                    .collect(Collectors.toList());
        }

        Object ends(Request request) {
            return List.of(
                    consumer.beginningOffsets(request.partitions()).values(),
                    consumer.endOffsets(request.partitions()).values());
        }

        Object commit(Request request) {
            if (!request.has("offset")) {
                consumer.commitSync();
                return null;
            }
            String metadata = request.has("metadata") ? request.text("metadata") : "";
            OffsetAndMetadata offset = new OffsetAndMetadata(request.large("offset"), metadata);
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            request.partitions().forEach(one -> offsets.put(one, offset));
            consumer.commitSync(offsets);
            return null;
        }

        Object committed(Request request) {
            Map<String, Object> found = new LinkedHashMap<>();
            consumer.committed(new HashSet<>(request.partitions())).forEach((at, offset) ->
                    found.put(at.toString(),
                            offset == null ? null : List.of(offset.offset(), offset.metadata())));
            return found;
        }

        List<Object> events() {
            List<Object> told = events;
            events = new ArrayList<>();
            return told;
        }

        @Override
        public void close() {
            consumer.close();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            happened("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (commitsWhenRevoked) {
                consumer.commitSync();
            }
            happened("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            happened("lost", partitions);
        }

        private void happened(String what, Collection<TopicPartition> partitions) {
            events.add(List.of(what, partitions.stream()
                    .map(one -> List.of(one.topic(), one.partition()))
                    .collect(Collectors.toList())));
        }

        private static Map<String, Object> written(ConsumerRecord<byte[], byte[]> one) {
            List<Object> headers = new ArrayList<>();
            for (Header header : one.headers()) {
                List<Object> pair = new ArrayList<>();
                pair.add(header.key());
                pair.add(header.value());
                headers.add(pair);
            }
            Map<String, Object> written = new LinkedHashMap<>();
            written.put("topic", one.topic());
            written.put("partition", one.partition());
            written.put("offset", one.offset());
            written.put("timestamp", one.timestamp());
            written.put("timestamp_type", one.timestampType());
            written.put("key", one.key());
            written.put("value", one.value());
            written.put("headers", headers);
            return written;
        }
    }
}
