import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Short transactions without a pause between them; prints the milliseconds that each took. */
public final class ShortTransactions {
    public static void main(String[] arguments) {
        String address = arguments[0], topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]), warm = Integer.parseInt(arguments[3]);
        double[] took = new double[Integer.parseInt(arguments[4])];
        Map<String, Object> settings =
                Map.of("bootstrap.servers", address, "transactional.id", "short-" + topic);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            for (int number = -warm; number < took.length; number++) {
                long began = System.nanoTime();
                producer.beginTransaction();
                for (int partition = 0; partition < partitions; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, new byte[100]));
                }
                producer.commitTransaction();
                if (number >= 0) {
                    took[number] = (System.nanoTime() - began) / 1e6;
                }
            }
        }
        System.out.println(Arrays.stream(took).mapToObj(Double::toString)
                .collect(Collectors.joining(" ")));
    }
}
