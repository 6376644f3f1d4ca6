package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Carries out one request per line of standard input; answers each with one line of JSON. */
final class Main {
    private static final int CAUSES_MAX = 8;

    private Main() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // Nothing else may write between the answers.
        Map<String, Verb> verbs = new LinkedHashMap<>();
        Consumers consumers = new Consumers(verbs);
        new Producers(verbs, consumers);
        new Administrators(verbs);
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(Json.write(answer(verbs, Request.parse(line))));
        }
        Runtime.getRuntime().halt(0); // Clients that a failed test left open are not worth a wait.
    }

    private static Object answer(Map<String, Verb> verbs, Request request) {
        try {
            Verb verb = verbs.get(request.verb());
            if (verb == null) {
                throw new IllegalArgumentException("no verb " + request.verb());
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("answer", verb.run(request));
            return answer;
        } catch (Exception | LinkageError problem) {
            return failure(problem);
        }
    }

    /** The names of a problem and of its causes: what a user would catch. */
    static Map<String, Object> failure(Throwable problem) {
        List<String> names = new ArrayList<>();
        for (Throwable at = problem; at != null && names.size() < CAUSES_MAX; at = at.getCause()) {
            names.add(at.getClass().getSimpleName());
        }
        Map<String, Object> failure = new LinkedHashMap<>();
        failure.put("errors", names);
        failure.put("message", String.valueOf(problem.getMessage()));
        return failure;
    }

    /** What stands behind the name of a request. */
    interface Verb {
        Object run(Request request) throws Exception;
    }
}
