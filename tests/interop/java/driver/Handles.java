package interop;

import java.util.LinkedHashMap;
import java.util.Map;

/** The clients that are open, by the name their opener gave them. */
final class Handles<T extends AutoCloseable> {
    private final Map<String, T> open = new LinkedHashMap<>();

    void add(Request request, T client) {
        open.put(request.text("name"), client);
    }

    T of(Request request) {
        return named(request.text("name"));
    }

    T named(String name) {
        T client = open.get(name);
        if (client == null) {
            throw new IllegalArgumentException("nothing open is called " + name);
        }
        return client;
    }

    void close(Request request) throws Exception {
        T client = of(request);
        open.remove(request.text("name"));
        client.close();
    }
}
