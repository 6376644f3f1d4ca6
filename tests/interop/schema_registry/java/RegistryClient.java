// Registers, evolves, is refused and decodes with Confluent's client as Flink shades it; prints JSON.

import java.util.List;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

public final class RegistryClient {
  private static AvroSchema record(String fields) {
    return new AvroSchema(
        "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"}"
            + fields + "]}");
  }

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    AvroSchema first = record("");
    AvroSchema grown = record(",{\"name\":\"kg\",\"type\":\"int\",\"default\":0}");
    AvroSchema broken = record(",{\"name\":\"price\",\"type\":\"int\"}");
    CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
    int one = client.register("java-value", first);
    int two = client.register("java-value", grown);
    int refused = 0;
    try {
      client.register("java-value", broken);
    } catch (RestClientException problem) {
      refused = problem.getErrorCode();
    }
    boolean passes = client.testCompatibility("java-value", broken);
    List<String> verbose = client.testCompatibilityVerbose("java-value", broken);
    CachedSchemaRegistryClient other = new CachedSchemaRegistryClient(url, 100);
    boolean isEqual = other.getSchemaById(two).equals(grown);
    String text = other.getSchemaById(two).canonicalString();
    SchemaMetadata latest = other.getLatestSchemaMetadata("java-value");
    System.out.println(
        "{\"first\":" + one + ",\"grown\":" + two + ",\"refused\":" + refused
            + ",\"passes\":" + passes + ",\"verbose\":" + verbose.size()
            + ",\"equal\":" + isEqual + ",\"same_text\":" + text.equals(latest.getSchema())
            + ",\"version\":" + other.getVersion("java-value", first)
            + ",\"versions\":" + other.getAllVersions("java-value")
            + ",\"found\":" + other.getId("java-value", grown)
            + ",\"level\":\"" + other.updateCompatibility("java-value", "FULL") + "\"}");
  }
}
