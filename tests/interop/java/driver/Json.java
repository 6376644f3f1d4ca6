package interop;

import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** Writes what the verbs answer with: maps, collections, numbers, text; bytes as base64. */
final class Json {
    private Json() {}

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof byte[] bytes) {
            text(out, Base64.getEncoder().encodeToString(bytes));
        } else if (value instanceof Map<?, ?> map) {
            object(out, map);
        } else if (value instanceof Collection<?> collection) {
            array(out, collection);
        } else if (value instanceof Optional<?> optional) {
            write(out, optional.orElse(null));
        } else if (value instanceof OptionalLong optional) {
            write(out, optional.isPresent() ? optional.getAsLong() : null);
        } else if (value instanceof OptionalInt optional) {
            write(out, optional.isPresent() ? optional.getAsInt() : null);
        } else {
            text(out, value.toString());
        }
    }

    private static void object(StringBuilder out, Map<?, ?> map) {
        String separator = "{";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(separator);
            text(out, String.valueOf(entry.getKey()));
            out.append(':');
            write(out, entry.getValue());
            separator = ",";
        }
        out.append(map.isEmpty() ? "{}" : "}");
    }

    private static void array(StringBuilder out, Collection<?> collection) {
        String separator = "[";
        for (Object one : collection) {
            out.append(separator);
            write(out, one);
            separator = ",";
        }
        out.append(collection.isEmpty() ? "[]" : "]");
    }

    private static void text(StringBuilder out, String text) {
        out.append('"');
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < ' ') {
                out.append(String.format("\\u%04x", (int) one));
            } else {
                out.append(one);
            }
        }
        out.append('"');
    }
}
