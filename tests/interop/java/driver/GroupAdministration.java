package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The admin client on groups and their offsets. */
final class GroupAdministration {
    private GroupAdministration() {}

    static void register(Map<String, Administrators.Call> calls) {
        calls.put("list_groups", GroupAdministration::list);
        calls.put("describe_group", GroupAdministration::describe);
        calls.put("delete_group", (admin, request) ->
                admin.deleteConsumerGroups(request.all("group")).all().get());
        calls.put("group_offsets", GroupAdministration::offsets);
        calls.put("alter_group_offsets", GroupAdministration::alterOffsets);
        calls.put("delete_group_offsets", (admin, request) -> admin.deleteConsumerGroupOffsets(
                request.text("group"), Set.copyOf(request.partitions())).all().get());
        calls.put("remove_member", (admin, request) -> admin.removeMembersFromConsumerGroup(
                request.text("group"),
                new RemoveMembersFromConsumerGroupOptions(
                        Set.of(new MemberToRemove(request.text("instance"))))).all().get());
    }

    private static Object list(Admin admin, Request request) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        admin.listConsumerGroups().all().get().forEach(one ->
                found.put(one.groupId(), List.of(text(one.state().get()), text(one.type().get()))));
        return found;
    }

    private static Object describe(Admin admin, Request request) throws Exception {
        String group = request.text("group");
        ConsumerGroupDescription found =
                admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        List<Object> members = new ArrayList<>();
        for (MemberDescription one : found.members()) {
            Map<String, Object> member = new LinkedHashMap<>();
            member.put("client_id", one.clientId());
            member.put("instance", one.groupInstanceId());
            member.put("host", one.host());
            member.put("partitions", one.assignment().topicPartitions().stream()
                    .map(TopicPartition::partition).sorted().collect(Collectors.toList()));
            members.add(member);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("state", text(found.state()));
        answer.put("type", text(found.type()));
        answer.put("assignor", found.partitionAssignor());
        answer.put("coordinator", found.coordinator().id());
        answer.put("members", members);
        return answer;
    }

    private static Object offsets(Admin admin, Request request) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        admin.listConsumerGroupOffsets(request.text("group"))
                .partitionsToOffsetAndMetadata().get()
                .forEach((partition, offset) ->
                        found.put(partition.toString(), offset == null ? null : offset.offset()));
        return found;
    }

    private static Object alterOffsets(Admin admin, Request request) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.partitions().forEach(one ->
                offsets.put(one, new OffsetAndMetadata(request.large("offset"))));
        return admin.alterConsumerGroupOffsets(request.text("group"), offsets).all().get();
    }

    private static String text(Object value) {
        return String.valueOf(value);
    }
}
