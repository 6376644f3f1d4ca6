package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers: records one way, and the transactions around them. */
final class Producers {
    private final Handles<KafkaProducer<byte[], byte[]>> producers = new Handles<>();
    private final Consumers consumers;

    Producers(Map<String, Main.Verb> verbs, Consumers consumers) {
        this.consumers = consumers;
        verbs.put("producer.open", this::open);
        verbs.put("producer.send", this::send);
        verbs.put("producer.init", request -> run(request, KafkaProducer::initTransactions));
        verbs.put("producer.begin", request -> run(request, KafkaProducer::beginTransaction));
        verbs.put("producer.commit", request -> run(request, KafkaProducer::commitTransaction));
        verbs.put("producer.abort", request -> run(request, KafkaProducer::abortTransaction));
        verbs.put("producer.short_transactions", this::shortTransactions);
        verbs.put("producer.offsets", this::sendOffsets);
        verbs.put("producer.close", request -> {
            producers.close(request);
            return null;
        });
    }

    private Object open(Request request) {
        producers.add(request, new KafkaProducer<>(
                request.settings(), new ByteArraySerializer(), new ByteArraySerializer()));
        return null;
    }

    /** Sends all, waits for all; where each lies, or why it was refused. */
    private Object send(Request request) throws InterruptedException {
        KafkaProducer<byte[], byte[]> producer = producers.of(request);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String written : request.all("record")) {
            sent.add(producer.send(record(request.text("topic"), written)));
        }
        producer.flush();
        List<Object> reports = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            try {
                reports.add(List.of(one.get().partition(), one.get().offset()));
            } catch (ExecutionException problem) {
                reports.add(Main.failure(problem.getCause()));
            }
        }
        return reports;
    }

    /** `partition,timestamp,key,value,header:value,...`: an empty number is left to the client. */
    private static ProducerRecord<byte[], byte[]> record(String topic, String written) {
        String[] fields = written.split(",", -1);
        RecordHeaders headers = new RecordHeaders();
        for (int at = 4; at < fields.length; at++) {
            String[] header = fields[at].split(":", 2);
            String name = new String(Request.bytes(header[0]), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, Request.bytes(header[1])));
        }
        return new ProducerRecord<>(
                topic,
                fields[0].isEmpty() ? null : Integer.valueOf(fields[0]),
                fields[1].isEmpty() ? null : Long.valueOf(fields[1]),
                Request.bytes(fields[2]),
                Request.bytes(fields[3]),
                headers);
    }

    /** Transactions without a pause, a record in each partition; how many records were retried. */
    private Object shortTransactions(Request request) {
        KafkaProducer<byte[], byte[]> producer = producers.of(request);
        int count = Integer.parseInt(request.text("count"));
        for (int number = 0; number < count; number++) {
            producer.beginTransaction();
            byte[] value = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
            for (TopicPartition at : request.partitions()) {
                producer.send(new ProducerRecord<>(at.topic(), at.partition(), null, value));
            }
            producer.commitTransaction();
        }
        return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("record-retry-total"))
                .filter(metric -> metric.metricName().group().equals("producer-metrics"))
                .mapToLong(metric -> ((Double) metric.metricValue()).longValue())
                .sum();
    }

    private Object sendOffsets(Request request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        int at = 0;
        for (TopicPartition partition : request.partitions()) {
            long offset = Long.parseLong(request.all("offset").get(at++));
            offsets.put(partition, new OffsetAndMetadata(offset));
        }
        producers.of(request).sendOffsetsToTransaction(
                offsets, consumers.groupMetadata(request.text("consumer")));
        return null;
    }

    private Object run(Request request, Step step) {
        step.on(producers.of(request));
        return null;
    }

    private interface Step {
        void on(KafkaProducer<byte[], byte[]> producer);
    }
}
