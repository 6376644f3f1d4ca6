package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The admin client on topics, settings, records and the cluster. */
final class Administrators {
    private final Handles<Admin> admins = new Handles<>();

    Administrators(Map<String, Main.Verb> verbs) {
        verbs.put("admin.open", request -> {
            admins.add(request, Admin.create(request.settings()));
            return null;
        });
        verbs.put("admin.close", request -> {
            admins.close(request);
            return null;
        });
        Map<String, Call> calls = new LinkedHashMap<>();
        calls.put("create_topic", Administrators::createTopic);
        calls.put("delete_topic", (admin, request) ->
                admin.deleteTopics(request.all("topic")).all().get());
        calls.put("list_topics", (admin, request) -> admin.listTopics().names().get());
        calls.put("describe_topic", Administrators::describeTopic);
        calls.put("grow_topic", (admin, request) -> admin.createPartitions(Map.of(
                request.text("topic"), NewPartitions.increaseTo(request.number("partitions"))))
                .all().get());
        calls.put("describe_configs", Administrators::describeConfigs);
        calls.put("alter_configs", Administrators::alterConfigs);
        calls.put("delete_records", Administrators::deleteRecords);
        calls.put("list_offsets", Administrators::listOffsets);
        calls.put("describe_cluster", Administrators::describeCluster);
        calls.put("describe_log_dirs", Administrators::describeLogDirs);
        calls.put("elect_leaders", (admin, request) -> admin.electLeaders(
                ElectionType.PREFERRED, Set.copyOf(request.partitions())).partitions().get());
        calls.put("list_reassignments", (admin, request) ->
                admin.listPartitionReassignments().reassignments().get());
        calls.put("describe_features", (admin, request) ->
                admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        GroupAdministration.register(calls);
        TransactionAdministration.register(calls);
        calls.forEach((name, call) -> verbs.put(
                "admin." + name, request -> call.run(admins.of(request), request)));
    }

    /** One call of the admin client. */
    interface Call {
        Object run(Admin admin, Request request) throws Exception;
    }

    private static Object createTopic(Admin admin, Request request) throws Exception {
        Map<String, String> settings = new HashMap<>();
        request.settings().forEach((name, value) -> settings.put((String) name, (String) value));
        Optional<Integer> partitions = Optional.empty();
        if (request.has("partitions")) {
            partitions = Optional.of(request.number("partitions"));
        }
        Optional<Short> replicas = Optional.empty();
        if (request.has("replicas")) {
            replicas = Optional.of((short) request.number("replicas"));
        }
        NewTopic topic = new NewTopic(request.text("topic"), partitions, replicas);
        return admin.createTopics(List.of(topic.configs(settings))).all().get();
    }

    private static Object describeTopic(Admin admin, Request request) throws Exception {
        TopicDescription found = admin.describeTopics(request.all("topic")).allTopicNames().get()
                .get(request.text("topic"));
        List<Object> partitions = new ArrayList<>();
        found.partitions().forEach(one -> partitions.add(List.of(
                one.partition(), one.leader().id(), ids(one.replicas()), ids(one.isr()))));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", found.topicId());
        answer.put("is_internal", found.isInternal());
        answer.put("partitions", partitions);
        return answer;
    }

    private static Object describeConfigs(Admin admin, Request request) throws Exception {
        ConfigResource resource = resource(request);
        Map<String, Object> found = new LinkedHashMap<>();
        for (ConfigEntry one :
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            List<Object> entry = new ArrayList<>();
            entry.add(one.value());
            entry.add(one.source());
            found.put(one.name(), entry);
        }
        return found;
    }

    private static Object alterConfigs(Admin admin, Request request) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        request.settings().forEach((name, value) -> changes.add(new AlterConfigOp(
                new ConfigEntry((String) name, (String) value), AlterConfigOp.OpType.SET)));
        request.all("delete").forEach(name -> changes.add(new AlterConfigOp(
                new ConfigEntry(name, null), AlterConfigOp.OpType.DELETE)));
        return admin.incrementalAlterConfigs(Map.of(resource(request), changes)).all().get();
    }

    private static ConfigResource resource(Request request) {
        return request.has("broker")
                ? new ConfigResource(ConfigResource.Type.BROKER, request.text("broker"))
                : new ConfigResource(ConfigResource.Type.TOPIC, request.text("topic"));
    }

    private static Object deleteRecords(Admin admin, Request request) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
        request.partitions().forEach(one ->
                wanted.put(one, RecordsToDelete.beforeOffset(request.large("offset"))));
        Map<String, Object> marks = new LinkedHashMap<>();
        for (TopicPartition one : wanted.keySet()) {
            marks.put(one.toString(),
                    admin.deleteRecords(wanted).lowWatermarks().get(one).get().lowWatermark());
        }
        return marks;
    }

    private static Object listOffsets(Admin admin, Request request) throws Exception {
        OffsetSpec spec = switch (request.text("spec")) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(request.large("spec"));
        };
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        request.partitions().forEach(one -> wanted.put(one, spec));
        Map<String, Object> found = new LinkedHashMap<>();
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> one :
                admin.listOffsets(wanted).all().get().entrySet()) {
            found.put(one.getKey().toString(),
                    List.of(one.getValue().offset(), one.getValue().timestamp()));
        }
        return found;
    }

    private static Object describeCluster(Admin admin, Request request) throws Exception {
        var found = admin.describeCluster();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", found.clusterId().get());
        answer.put("controller", found.controller().get().id());
        answer.put("nodes", found.nodes().get().stream()
                .map(one -> List.of(one.id(), one.host(), one.port()))
                .collect(Collectors.toList()));
        return answer;
    }

    private static Object describeLogDirs(Admin admin, Request request) throws Exception {
        Map<String, Object> sizes = new LinkedHashMap<>();
        Set<Integer> brokers = new HashSet<>(List.of(request.number("broker")));
        admin.describeLogDirs(brokers).allDescriptions().get().values().forEach(directories ->
                directories.values().forEach(directory ->
                        directory.replicaInfos().forEach((partition, replica) ->
                                sizes.put(partition.toString(), replica.size()))));
        return sizes;
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }
}
