"""aiokafka, its event loop in a thread of its own."""

import asyncio
import sys
import threading

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError

from scenario import Client, Failed, Member, NotAvailable, PARTITIONS, PATIENCE_SECONDS, Record, main


class AioMember(Member, ConsumerRebalanceListener):
    def __init__(self, client):
        super().__init__()
        self.client, self.held, self.stopped = client, set(), False
        self.task = asyncio.run_coroutine_threadsafe(self.run(), client.loop)

    def on_partitions_assigned(self, assigned):
        self.held = {p.partition for p in assigned}

    def on_partitions_revoked(self, revoked):
        self.held = set()

    async def run(self):
        consumer = self.client.consumer(group_id=self.client.group, heartbeat_interval_ms=500)
        try:
            consumer.subscribe([self.client.topic], listener=self)
            await consumer.start()
            while not self.stopped:
                if batches := await consumer.getmany(timeout_ms=100):
                    for batch in batches.values():
                        self.seen += [(r.partition, r.offset, r.key.decode()) for r in batch]
                    try:
                        await consumer.commit()
                    except CommitFailedError as error:
                        # A rebalance came between; the records come again.
                        print(error, file=sys.stderr)
        except Exception as error:
            self.error = error
        finally:
            await consumer.stop()

    def assignment(self):
        return self.held

    def close(self):
        self.stopped = True
        self.task.result(PATIENCE_SECONDS)


class Aio(Client):
    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.admin = self.wait(self.start_admin())
        self.partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]

    async def start_admin(self):
        admin = AIOKafkaAdminClient(bootstrap_servers=self.broker)
        await admin.start()
        return admin

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_SECONDS)

    def consumer(self, **more):
        return AIOKafkaConsumer(bootstrap_servers=self.broker, auto_offset_reset="earliest", enable_auto_commit=False,
                                **more)

    def ask(self, question):
        """The answer of a started consumer without a group to `question(consumer)`."""
        async def run():
            consumer = self.consumer()
            try:
                await consumer.start()
                return await question(consumer)
            finally:
                await consumer.stop()
        return self.wait(run())

    def create(self, partitions):
        answer = self.wait(self.admin.create_topics([NewTopic(self.topic, partitions, 1)]))
        if answer.topic_errors[0][1]:
            raise Failed(answer)

    def produce(self, codec, records):
        async def run():
            producer = AIOKafkaProducer(bootstrap_servers=self.broker, acks="all", enable_idempotence=True,
                                        compression_type=None if codec == "none" else codec)
            await producer.start()
            try:
                sent = [await producer.send(self.topic, r.value.encode(), r.key.encode(), timestamp_ms=r.timestamp,
                                            headers=[(name, value.encode()) for name, value in r.headers],
                                            partition=r.partition) for r in records]
                await asyncio.gather(*sent)
            finally:
                await producer.stop()
        self.wait(run())

    def read(self, starts, count):
        async def run(consumer):
            partitions, found = [TopicPartition(self.topic, p) for p in starts], []
            consumer.assign(partitions)
            for p in partitions:
                consumer.seek(p, starts[p.partition])
            while len(found) < count:
                r = await consumer.getone()
                headers = tuple((name, value.decode()) for name, value in r.headers)
                found.append(Record(r.partition, r.timestamp, r.key.decode(), r.value.decode(), headers, r.offset))
            return found
        return self.ask(run)

    def member(self):
        return AioMember(self)

    def committed(self):
        found = self.wait(self.admin.list_consumer_group_offsets(self.group))
        return {p.partition: o.offset for p, o in found.items()}

    def offsets_for_time(self, at_ms):
        found = self.ask(lambda consumer: consumer.offsets_for_times({p: at_ms for p in self.partitions}))
        return {p.partition: o and o.offset for p, o in found.items()}

    def earliest(self, partition):
        asked = TopicPartition(self.topic, partition)
        return self.ask(lambda consumer: consumer.beginning_offsets([asked]))[asked]

    def ends(self):
        return {p.partition: o for p, o in self.ask(lambda c: c.end_offsets(self.partitions)).items()}

    def topics(self):
        return self.wait(self.admin.list_topics())

    def describe_topic(self):
        topic, = self.wait(self.admin.describe_topics([self.topic]))
        return {p["partition"]: p["leader"] for p in topic["partitions"]}

    def describe_configs(self):
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
        answer, = self.wait(self.admin.describe_configs([resource]))
        return {config[0]: config[1] for config in answer.resources[0][4]}

    def describe_group(self):
        answer, = self.wait(self.admin.describe_consumer_groups([self.group]))
        error, _, state, _, _, members, *_ = answer.groups[0]
        if error:
            raise Failed(answer)
        return state, len(members)

    def groups(self):
        return [group for group, *_ in self.wait(self.admin.list_consumer_groups())]

    def delete_records(self, partition, before):
        self.wait(self.admin.delete_records({TopicPartition(self.topic, partition): RecordsToDelete(before)}))

    def delete_group(self):
        raise NotAvailable("AIOKafkaAdminClient has no function that deletes a group")

    def delete_topic(self):
        self.wait(self.admin.delete_topics([self.topic]))


main(Aio)
