package interop;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;

/** A verb and its parameters, as a URL writes them: `verb?name=value&name=value`. */
record Request(String verb, Map<String, List<String>> parameters) {
    private static final String SETTING = "config.";
    private static final String NULL = "~";

    static Request parse(String line) {
        int at = line.indexOf('?');
        Map<String, List<String>> parameters = new LinkedHashMap<>();
        for (String pair : line.substring(at + 1).split("&")) {
            if (!pair.isEmpty()) {
                String[] parts = pair.split("=", 2);
                parameters.computeIfAbsent(decoded(parts[0]), name -> new ArrayList<>())
                        .add(decoded(parts[1]));
            }
        }
        return new Request(line.substring(0, at), parameters);
    }

    String text(String name) {
        List<String> values = all(name);
        if (values.size() != 1) {
            throw new IllegalArgumentException(verb + " takes one " + name + ": " + values);
        }
        return values.get(0);
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }

    long large(String name) {
        return Long.parseLong(text(name));
    }

    boolean has(String name) {
        return parameters.containsKey(name);
    }

    List<String> all(String name) {
        return parameters.getOrDefault(name, List.of());
    }

    /** Every `partition=topic,number`. */
    Collection<TopicPartition> partitions() {
        return all("partition").stream()
                .map(one -> one.split(","))
                .map(one -> new TopicPartition(one[0], Integer.parseInt(one[1])))
                .collect(Collectors.toList());
    }

    /** Every `config.name=value`, as a client takes them. */
    Properties settings() {
        Properties settings = new Properties();
        parameters.forEach((name, values) -> {
            if (name.startsWith(SETTING)) {
                settings.put(name.substring(SETTING.length()), values.get(0));
            }
        });
        return settings;
    }

    static byte[] bytes(String written) {
        return written.equals(NULL) ? null : Base64.getUrlDecoder().decode(written);
    }

    private static String decoded(String part) {
        return URLDecoder.decode(part, StandardCharsets.UTF_8);
    }
}
