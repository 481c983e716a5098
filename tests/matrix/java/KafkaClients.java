// Apache Kafka's Java client. Answers the requests of tests/matrix/remote.py.

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

public final class KafkaClients {
    static final int PARTITIONS = 4;
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final Duration POLL = Duration.ofMillis(100);
    static final ObjectMapper JSON =
            new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    record Entry(int partition, long timestamp, String key, String value, List<List<String>> headers, long offset) {}

    record Request(String doing, int partitions, String codec, List<Entry> records, Map<Integer, Long> starts,
            int count, int member, long at_ms, int partition, long before) {}

    final String broker;
    final String name;
    final Admin admin;
    final List<Member> members = new ArrayList<>();

    KafkaClients(String broker, String name) {
        this.broker = broker;
        this.name = name;
        this.admin = Admin.create(settings());
    }

    public static void main(String[] arguments) throws Exception {
        var client = new KafkaClients(arguments[0], arguments[1]);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            var answer = new HashMap<String, Object>();
            try {
                // `do` is no name in Java.
                var request = JSON.readValue(line.replaceFirst("\"do\":", "\"doing\":"), Request.class);
                answer.put("ok", client.answer(request));
            } catch (Exception e) {
                e.printStackTrace();
                answer.put("error", String.valueOf(e));
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    Object answer(Request r) throws Exception {
        switch (r.doing) {
            case "create" -> done(admin.createTopics(List.of(new NewTopic(name, r.partitions, (short) 1))).all());
            case "produce" -> produce(r.codec, r.records);
            case "read" -> { return read(r.starts, r.count); }
            case "member" -> {
                members.add(new Member());
                return members.size() - 1;
            }
            case "member_state" -> { return members.get(r.member).take(); }
            case "close_member" -> { return members.get(r.member).end(); }
            case "committed" -> { return committed(); }
            case "offsets_for_time" -> { return offsets(OffsetSpec.forTimestamp(r.at_ms)); }
            case "earliest" -> { return offsets(OffsetSpec.earliest()).get(r.partition); }
            case "ends" -> { return offsets(OffsetSpec.latest()); }
            case "topics" -> { return done(admin.listTopics().names()); }
            case "describe_topic" -> { return describeTopic(); }
            case "describe_configs" -> { return describeConfigs(); }
            case "describe_group" -> { return describeGroup(); }
            case "groups" -> {
                return done(admin.listGroups().all()).stream().map(GroupListing::groupId).toList();
            }
            case "delete_records" -> done(admin.deleteRecords(Map.of(
                    new TopicPartition(name, r.partition), RecordsToDelete.beforeOffset(r.before))).all());
            case "delete_group" -> done(admin.deleteConsumerGroups(List.of(name)).all());
            case "delete_topic" -> done(admin.deleteTopics(List.of(name)).all());
            default -> throw new IllegalArgumentException("there is no request " + r.doing);
        }
        return null;
    }

    static <T> T done(Future<T> future) throws Exception {
        return future.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    Properties settings() {
        var settings = new Properties();
        settings.put("bootstrap.servers", broker);
        return settings;
    }

    KafkaConsumer<String, String> consumer(String group) {
        var settings = settings();
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (group != null) {
            settings.put("group.id", group);
            settings.put("heartbeat.interval.ms", "500");
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    List<TopicPartition> all() {
        return IntStream.range(0, PARTITIONS).mapToObj(p -> new TopicPartition(name, p)).toList();
    }

    void produce(String codec, List<Entry> records) throws Exception {
        var settings = settings();
        settings.put("compression.type", codec);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var sent = new ArrayList<Future<RecordMetadata>>();
            for (var r : records) {
                var record = new ProducerRecord<>(name, r.partition, r.timestamp, r.key, r.value);
                r.headers.forEach(h -> record.headers().add(h.get(0), h.get(1).getBytes()));
                sent.add(producer.send(record));
            }
            for (var future : sent) done(future);
        }
    }

    List<Entry> read(Map<Integer, Long> starts, int count) {
        var found = new ArrayList<Entry>();
        try (var consumer = consumer(null)) {
            consumer.assign(starts.keySet().stream().map(p -> new TopicPartition(name, p)).toList());
            starts.forEach((p, offset) -> consumer.seek(new TopicPartition(name, p), offset));
            while (found.size() < count) {
                var batch = consumer.poll(PATIENCE);
                if (batch.isEmpty()) {
                    throw new IllegalStateException(found.size() + " of " + count + " records came");
                }
                for (var r : batch) {
                    var headers = new ArrayList<List<String>>();
                    for (Header h : r.headers()) headers.add(List.of(h.key(), new String(h.value())));
                    found.add(new Entry(r.partition(), r.timestamp(), r.key(), r.value(), headers, r.offset()));
                }
            }
        }
        return found;
    }

    final class Member implements ConsumerRebalanceListener, Runnable {
        private final Set<Integer> held = ConcurrentHashMap.newKeySet();
        private final Queue<List<Object>> seen = new ConcurrentLinkedQueue<>();
        private final Thread thread = new Thread(this);
        private volatile boolean stopped;
        private volatile String error;

        Member() {
            thread.start();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> held.add(p.partition()));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> held.remove(p.partition()));
        }

        @Override
        public void run() {
            try (var consumer = consumer(name)) {
                consumer.subscribe(List.of(name), this);
                while (!stopped) {
                    var batch = consumer.poll(POLL);
                    batch.forEach(r -> seen.add(List.of(r.partition(), r.offset(), r.key())));
                    if (!batch.isEmpty()) consumer.commitSync();
                }
            } catch (Exception e) {
                e.printStackTrace();
                error = String.valueOf(e);
            }
        }

        Map<String, Object> take() {
            var fresh = new ArrayList<List<Object>>();
            for (var one = seen.poll(); one != null; one = seen.poll()) fresh.add(one);
            var state = new HashMap<String, Object>();
            state.put("held", List.copyOf(held));
            state.put("seen", fresh);
            state.put("error", error);
            return state;
        }

        Map<String, Object> end() throws InterruptedException {
            stopped = true;
            thread.join(PATIENCE.toMillis());
            if (thread.isAlive()) throw new IllegalStateException("the member does not end");
            return take();
        }
    }

    Map<Integer, Long> committed() throws Exception {
        var found = done(admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata());
        return found.entrySet().stream()
                .collect(Collectors.toMap(e -> e.getKey().partition(), e -> e.getValue().offset()));
    }

    Map<Integer, Long> offsets(OffsetSpec spec) throws Exception {
        var asked = all().stream().collect(Collectors.toMap(p -> p, p -> spec));
        return done(admin.listOffsets(asked).all()).entrySet().stream()
                .collect(Collectors.toMap(e -> e.getKey().partition(), e -> e.getValue().offset()));
    }

    Map<Integer, Integer> describeTopic() throws Exception {
        var found = done(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        return found.partitions().stream().collect(Collectors.toMap(p -> p.partition(), p -> p.leader().id()));
    }

    Map<String, String> describeConfigs() throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        var configs = new HashMap<String, String>();
        done(admin.describeConfigs(List.of(resource)).all()).get(resource).entries()
                .forEach(e -> configs.put(e.name(), e.value()));
        return configs;
    }

    List<Object> describeGroup() throws Exception {
        var found = done(admin.describeConsumerGroups(List.of(name)).all()).get(name);
        return List.of(found.groupState().toString(), found.members().size());
    }
}
