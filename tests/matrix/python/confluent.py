"""confluent-kafka."""

import threading

from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicCollection,
                             TopicPartition)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from scenario import Client, Member, PARTITIONS, PATIENCE_SECONDS, Record, main


class ConfluentMember(Member):
    def __init__(self, client):
        super().__init__()
        self.consumer = client.consumer(**{"enable.auto.offset.store": False, "heartbeat.interval.ms": 500})
        self.held, self.stopped = set(), threading.Event()
        self.consumer.subscribe([client.topic], on_assign=self.assigned, on_revoke=self.revoked)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def assigned(self, _, partitions):
        self.held = {p.partition for p in partitions}

    def revoked(self, _, partitions):
        self.held = set()

    def run(self):
        try:
            while not self.stopped.is_set():
                batch = self.consumer.consume(100, timeout=0.1)
                for message in batch:
                    if message.error():
                        raise KafkaException(message.error())
                    self.seen.append((message.partition(), message.offset(), message.key().decode()))
                    self.consumer.store_offsets(message)
                if batch:
                    self.consumer.commit(asynchronous=False)
        except Exception as error:
            self.error = error
        finally:
            self.consumer.close()

    def assignment(self):
        return self.held

    def close(self):
        self.stopped.set()
        self.thread.join()


class Confluent(Client):
    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.admin = AdminClient({"bootstrap.servers": broker})
        self.partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    def consumer(self, **more):
        return Consumer({"bootstrap.servers": self.broker, "group.id": self.group, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", "check.crcs": True, **more})

    def each(self, futures):
        return {key: future.result(PATIENCE_SECONDS) for key, future in futures.items()}

    def create(self, partitions):
        self.each(self.admin.create_topics([NewTopic(self.topic, partitions, 1)]))

    def produce(self, codec, records):
        producer, faults = Producer({"bootstrap.servers": self.broker, "compression.type": codec, "acks": "all"}), []
        for r in records:
            producer.produce(self.topic, r.value, r.key, r.partition, timestamp=r.timestamp, headers=list(r.headers),
                             on_delivery=lambda error, _: error and faults.append(error))
        if producer.flush(PATIENCE_SECONDS) or faults:
            raise KafkaException(faults or "not all was answered")

    def read(self, starts, count):
        consumer, found = self.consumer(), []
        try:
            consumer.assign([TopicPartition(self.topic, p, o) for p, o in starts.items()])
            while len(found) < count:
                for m in consumer.consume(count - len(found), timeout=PATIENCE_SECONDS) or [None]:
                    if m is None or m.error():
                        raise KafkaException(m.error() if m else f"{len(found)} of {count} records came")
                    headers = tuple((name, value.decode()) for name, value in m.headers())
                    found.append(Record(m.partition(), m.timestamp()[1], m.key().decode(), m.value().decode(), headers,
                                        m.offset()))
        finally:
            consumer.close()
        return found

    def member(self):
        return ConfluentMember(self)

    def committed(self):
        request = [ConsumerGroupTopicPartitions(self.group, self.partitions)]
        found = self.each(self.admin.list_consumer_group_offsets(request))[self.group]
        return {p.partition: p.offset for p in found.topic_partitions}

    def offsets(self, spec):
        found = self.each(self.admin.list_offsets({p: spec for p in self.partitions}))
        return {p.partition: result.offset for p, result in found.items()}

    def offsets_for_time(self, at_ms):
        consumer = self.consumer()
        try:
            asked = [TopicPartition(self.topic, p, at_ms) for p in range(PARTITIONS)]
            found = {p.partition: p.offset for p in consumer.offsets_for_times(asked, timeout=PATIENCE_SECONDS)}
        finally:
            consumer.close()
        # Both ways of asking; the consumer's answers "the end" where no record is as late.
        by_admin = self.offsets(OffsetSpec.for_timestamp(at_ms))
        if {o for o in found.values() if o >= 0} and found != by_admin:
            raise KafkaException(f"the consumer was told {found}, the admin client {by_admin}")
        return by_admin

    def earliest(self, partition):
        return self.offsets(OffsetSpec.earliest())[partition]

    def ends(self):
        return self.offsets(OffsetSpec.latest())

    def topics(self):
        return self.admin.list_topics(timeout=PATIENCE_SECONDS).topics

    def describe_topic(self):
        found = self.each(self.admin.describe_topics(TopicCollection([self.topic])))[self.topic]
        return {p.id: p.leader.id for p in found.partitions}

    def describe_configs(self):
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        return {name: c.value for name, c in self.each(self.admin.describe_configs([resource]))[resource].items()}

    def describe_group(self):
        found = self.each(self.admin.describe_consumer_groups([self.group]))[self.group]
        return found.state.name.capitalize(), len(found.members)

    def groups(self):
        return [g.group_id for g in self.admin.list_consumer_groups().result(PATIENCE_SECONDS).valid]

    def delete_records(self, partition, before):
        self.each(self.admin.delete_records([TopicPartition(self.topic, partition, before)]))

    def delete_group(self):
        self.each(self.admin.delete_consumer_groups([self.group]))

    def delete_topic(self):
        self.each(self.admin.delete_topics([self.topic]))


main(Confluent)
