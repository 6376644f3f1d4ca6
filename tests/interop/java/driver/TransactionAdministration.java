package interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.common.TopicPartition;

/** The admin client on producers and transactions. */
final class TransactionAdministration {
    private TransactionAdministration() {}

    static void register(Map<String, Administrators.Call> calls) {
        calls.put("describe_producers", TransactionAdministration::producers);
        calls.put("describe_transaction", TransactionAdministration::describe);
        calls.put("list_transactions", TransactionAdministration::list);
        calls.put("fence_producers", (admin, request) ->
                admin.fenceProducers(request.all("transactional_id")).all().get());
        calls.put("abort_transaction", TransactionAdministration::abort);
    }

    private static Object producers(Admin admin, Request request) throws Exception {
        List<Object> found = new ArrayList<>();
        for (ProducerState one : states(admin, request)) {
            Map<String, Object> state = new LinkedHashMap<>();
            state.put("producer_id", one.producerId());
            state.put("epoch", one.producerEpoch());
            state.put("last_sequence", one.lastSequence());
            state.put("transaction_start", one.currentTransactionStartOffset());
            found.add(state);
        }
        return found;
    }

    private static List<ProducerState> states(Admin admin, Request request) throws Exception {
        TopicPartition partition = request.partitions().iterator().next();
        return admin.describeProducers(request.partitions())
                .partitionResult(partition).get().activeProducers();
    }

    private static Object describe(Admin admin, Request request) throws Exception {
        TransactionDescription found = admin.describeTransactions(request.all("transactional_id"))
                .all().get().get(request.text("transactional_id"));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("state", found.state());
        answer.put("coordinator", found.coordinatorId());
        answer.put("epoch", found.producerEpoch());
        answer.put("timeout_ms", found.transactionTimeoutMs());
        answer.put("has_start", found.transactionStartTimeMs().isPresent());
        answer.put("partitions", found.topicPartitions().stream()
                .map(TopicPartition::toString).sorted().collect(Collectors.toList()));
        return answer;
    }

    private static Object list(Admin admin, Request request) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        admin.listTransactions().all().get().forEach(one ->
                found.put(one.transactionalId(), one.state()));
        return found;
    }

    /** As an operator does with a transaction that nobody will end. */
    private static Object abort(Admin admin, Request request) throws Exception {
        TopicPartition partition = request.partitions().iterator().next();
        ProducerState open = states(admin, request).stream()
                .filter(one -> one.currentTransactionStartOffset().isPresent())
                .findFirst().orElseThrow();
        return admin.abortTransaction(new AbortTransactionSpec(
                partition,
                open.producerId(),
                (short) open.producerEpoch(),
                open.coordinatorEpoch().orElse(0))).all().get();
    }
}
