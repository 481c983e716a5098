"""kafka-python."""

import threading

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.subscription_state import ConsumerRebalanceListener

from scenario import Client, Failed, Member, PARTITIONS, PATIENCE_SECONDS, Record, main

LATEST, EARLIEST = -1, -2


class KafkaPythonMember(Member, ConsumerRebalanceListener):
    def __init__(self, client):
        super().__init__()
        self.consumer = client.consumer(group_id=client.group, heartbeat_interval_ms=500)
        self.held, self.stopped = set(), threading.Event()
        self.consumer.subscribe([client.topic], listener=self)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def on_partitions_assigned(self, assigned):
        self.held = {p.partition for p in assigned}

    def on_partitions_revoked(self, revoked):
        self.held = set()

    def run(self):
        try:
            while not self.stopped.is_set():
                if batches := self.consumer.poll(100):
                    for batch in batches.values():
                        self.seen += [(r.partition, r.offset, r.key.decode()) for r in batch]
                    self.consumer.commit()
        except Exception as error:
            self.error = error
        finally:
            self.consumer.close()

    def assignment(self):
        return self.held

    def close(self):
        self.stopped.set()
        self.thread.join()


class KafkaPython(Client):
    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.admin = KafkaAdminClient(bootstrap_servers=broker)
        self.partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    def consumer(self, **more):
        return KafkaConsumer(bootstrap_servers=self.broker, auto_offset_reset="earliest", enable_auto_commit=False,
                             **more)

    def create(self, partitions):
        self.admin.create_topics({self.topic: {"num_partitions": partitions, "replication_factor": 1}})

    def produce(self, codec, records):
        producer = KafkaProducer(bootstrap_servers=self.broker, acks="all",
                                 compression_type=None if codec == "none" else codec)
        try:
            sent = [producer.send(self.topic, r.value.encode(), r.key.encode(), timestamp_ms=r.timestamp,
                                  headers=[(name, value.encode()) for name, value in r.headers],
                                  partition=r.partition) for r in records]
            for future in sent:
                future.get(PATIENCE_SECONDS)
        finally:
            producer.close()

    def read(self, starts, count):
        consumer, found = self.consumer(), []
        try:
            partitions = [TopicPartition(self.topic, p) for p in starts]
            consumer.assign(partitions)
            for p in partitions:
                consumer.seek(p, starts[p.partition])
            while len(found) < count:
                batches = consumer.poll(PATIENCE_SECONDS * 1000)
                if not batches:
                    raise Failed(f"{len(found)} of {count} records came")
                for r in (r for batch in batches.values() for r in batch):
                    headers = tuple((name, value.decode()) for name, value in r.headers)
                    found.append(Record(r.partition, r.timestamp, r.key.decode(), r.value.decode(), headers, r.offset))
        finally:
            consumer.close()
        return found

    def member(self):
        return KafkaPythonMember(self)

    def committed(self):
        found = self.admin.list_group_offsets(self.group)[self.group]
        return {p.partition: o.offset for p, o in found.items()}

    def offsets(self, spec):
        found = self.admin.list_partition_offsets({p: spec for p in self.partitions})
        return {p.partition: o.offset for p, o in found.items()}

    def offsets_for_time(self, at_ms):
        consumer = self.consumer()
        try:
            found = consumer.offsets_for_times({p: at_ms for p in self.partitions})
            return {p.partition: o and o.offset for p, o in found.items()}
        finally:
            consumer.close()

    def earliest(self, partition):
        return self.offsets(EARLIEST)[partition]

    def ends(self):
        return self.offsets(LATEST)

    def topics(self):
        return self.admin.list_topics()

    def describe_topic(self):
        topic, = self.admin.describe_topics([self.topic])
        return {p["partition_index"]: p["leader_id"] for p in topic["partitions"]}

    def describe_configs(self):
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][self.topic]
        return {name: config["value"] for name, config in found.items()}

    def describe_group(self):
        found = self.admin.describe_groups([self.group])[self.group]
        if found["error"]:
            raise Failed(found["error"])
        return found["group_state"], len(found["members"])

    def groups(self):
        return [g["group_id"] for g in self.admin.list_groups()]

    def delete_records(self, partition, before):
        self.admin.delete_records({TopicPartition(self.topic, partition): before})

    def delete_group(self):
        found = self.admin.delete_groups([self.group])
        if found != {self.group: "OK"}:
            raise Failed(found)

    def delete_topic(self):
        self.admin.delete_topics([self.topic])


main(KafkaPython)
