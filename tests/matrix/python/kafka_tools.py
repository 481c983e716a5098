"""Apache Kafka's own tools, as a client: each is a program, run from the jars in $KAFKA_JARS.

The members of the group are kafka-verifiable-consumers, which tell what they are assigned.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading

from scenario import Client, Failed, Member, PARTITIONS, Record, check, main

TOOLS = "org.apache.kafka.tools."
CONSUMER_GROUPS = "consumer.group.ConsumerGroupCommand"
# A tool that runs to its end takes no longer, on a busy machine too.
TOOL_SECONDS_MAX = 120
IDLE_MS = 20_000
PERF_RECORDS = 5000
PERF_BYTES = 100
VERIFIABLE_RECORDS = 200


def java(tool):
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{os.environ['KAFKA_JARS']}/*", TOOLS + tool]


def murmur2(data):
    """The hash of a key by which Java's producer chooses the partition."""
    m, mask = 0x5bd1e995, 0xffffffff
    h = 0x9747b28c ^ len(data)
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i:i + 4], "little") * m & mask
        h = h * m & mask ^ (k ^ k >> 24) * m & mask
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


class ToolMember(Member):
    def __init__(self, client):
        super().__init__()
        self.held, self.closing = set(), False
        self.program = subprocess.Popen(
            [*java("VerifiableConsumer"), "--bootstrap-server", client.broker, "--topic", client.topic, "--group-id",
             client.group, "--reset-policy", "earliest", "--verbose", "--command-config", client.member_config],
            stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for line in self.program.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            partitions = {p["partition"] for p in event.get("partitions", []) if "partition" in p}
            match event["name"]:
                case "partitions_assigned":
                    self.held |= partitions
                case "partitions_revoked":
                    self.held -= partitions
                case "record_data":
                    self.seen.append((event["partition"], event["offset"], event["key"]))
                case "offsets_committed" if not event["success"]:
                    # A rebalance may come between; the records come again then.
                    print(line)
        if self.program.wait() and not self.closing:
            self.error = f"kafka-verifiable-consumer ended with {self.program.returncode}"

    def assignment(self):
        return self.held

    def close(self):
        self.closing = True
        self.program.send_signal(signal.SIGTERM)
        self.thread.join(TOOL_SECONDS_MAX)
        if self.thread.is_alive():
            self.program.kill()
            self.error = "kafka-verifiable-consumer does not stop"


class Tools(Client):
    sets_timestamps = False

    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.directory = tempfile.TemporaryDirectory()
        self.member_config = self.file("member.properties", "heartbeat.interval.ms=500\n")

    def file(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def run(self, tool, *arguments, **more):
        done = subprocess.run([*java(tool), "--bootstrap-server", self.broker, *arguments], capture_output=True,
                              text=True, timeout=TOOL_SECONDS_MAX, **more)
        if done.returncode:
            raise Failed(f"{tool} {' '.join(arguments)}: {done.returncode}: {done.stdout} {done.stderr}")
        # Some say what failed and end well.
        if "Exception" in done.stdout + done.stderr:
            raise Failed(f"{tool} {' '.join(arguments)}: {done.stdout} {done.stderr}")
        return done.stdout

    def partition_of(self, index, key):
        return (murmur2(key.encode()) & 0x7fffffff) % PARTITIONS

    def create(self, partitions):
        self.run("TopicCommand", "--create", "--topic", self.topic, "--partitions", str(partitions),
                 "--replication-factor", "1")

    def produce(self, codec, records):
        lines = (f"{','.join(f'{n}:{v}' for n, v in r.headers)}\t{r.key}\t{r.value}\n" for r in records)
        self.run("ConsoleProducer", "--topic", self.topic, "--compression-codec", codec, "--reader-property",
                 "parse.key=true", "--reader-property", "parse.headers=true", input="".join(lines))

    def console(self, count, *arguments):
        """What kafka-console-consumer prints."""
        shown = [argument for name in ("key", "headers", "partition", "offset", "timestamp")
                 for argument in ("--formatter-property", f"print.{name}=true")]
        lines = self.run("consumer.ConsoleConsumer", "--topic", self.topic, "--max-messages", str(count),
                         "--timeout-ms", str(IDLE_MS), *shown, *arguments).splitlines()
        found = []
        for line in lines:
            stamp, partition, offset, headers, key, value = line.split("\t")
            kind, timestamp = stamp.split(":")
            check("the kind of timestamp", kind, "CreateTime")
            headers = tuple(tuple(h.split(":")) for h in headers.split(","))
            found.append(Record(int(partition.split(":")[1]), int(timestamp), key, value, headers,
                                int(offset.split(":")[1])))
        return found

    def read(self, starts, count):
        ends, found = self.ends(), []
        for partition, offset in starts.items():
            found += self.console(ends[partition] - offset, "--partition", str(partition), "--offset", str(offset))
        return found

    def member(self):
        return ToolMember(self)

    def group_rows(self, *arguments, group=None):
        said = self.run(CONSUMER_GROUPS, "--group", group or self.group, *arguments)
        return [line.split() for line in said.splitlines() if line.startswith((group or self.group) + " ")]

    def committed(self, group=None):
        return {int(row[2]): int(row[3]) for row in self.group_rows("--describe", group=group)}

    def offsets(self, time):
        said = self.run("GetOffsetShell", "--topic", self.topic, "--time", str(time))
        return {int(p): int(o) for p, o in re.findall(rf"^{self.topic}:(\d+):(-?\d+)$", said, re.M)}

    def offsets_for_time(self, at_ms):
        return self.offsets(at_ms)

    def earliest(self, partition):
        return self.offsets("earliest")[partition]

    def ends(self):
        return self.offsets("latest")

    def topics(self):
        return self.run("TopicCommand", "--list").split()

    def describe_topic(self):
        said = self.run("TopicCommand", "--describe", "--topic", self.topic)
        return {int(p): int(leader) for p, leader in re.findall(r"Partition: (\d+)\s+Leader: (\d+)", said)}

    def describe_configs(self):
        said = self.run("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", self.topic, "--all")
        return dict(re.findall(r"^ +([a-z.]+)=(\S*) sensitive", said, re.M))

    def describe_group(self):
        row, = self.group_rows("--describe", "--state")
        members = self.group_rows("--describe", "--members") if row[-1] != "0" else []
        check("members that are listed", len(members), int(row[-1]))
        return row[-2], int(row[-1])

    def groups(self):
        return self.run(CONSUMER_GROUPS, "--list").split()

    def delete_records(self, partition, before):
        asked = {"version": 1, "partitions": [{"topic": self.topic, "partition": partition, "offset": before}]}
        self.run("DeleteRecordsCommand", "--offset-json-file", self.file("delete.json", json.dumps(asked)))

    def delete_group(self):
        self.run(CONSUMER_GROUPS, "--delete", "--group", self.group)

    def delete_topic(self):
        self.run("TopicCommand", "--delete", "--topic", self.topic)

    def extras(self):
        return [("kafka-consumer-groups-lag", self.lag_is_shown), ("kafka-configs", self.alter_configs),
                ("kafka-console-consumer-group", self.console_group),
                ("kafka-consumer-groups-reset", self.reset_offsets),
                ("kafka-consumer-groups-delete-offsets", self.delete_offsets), ("kafka-log-dirs", self.log_dirs),
                ("kafka-producer-perf-test", self.produce_fast), ("kafka-consumer-perf-test", self.consume_fast),
                ("kafka-verifiable-producer", self.verifiable_producer)]

    def lag_is_shown(self):
        check("the lag", sum(int(row[5]) for row in self.group_rows("--describe")), 20)

    def alter_configs(self):
        alter = ["--alter", "--entity-type", "topics", "--entity-name", self.topic]
        before = self.describe_configs()["retention.ms"]
        self.run("ConfigCommand", *alter, "--add-config", "retention.ms=86400000")
        check("retention.ms", self.describe_configs()["retention.ms"], "86400000")
        self.run("ConfigCommand", *alter, "--delete-config", "retention.ms")
        check("retention.ms", self.describe_configs()["retention.ms"], before)

    @property
    def console_name(self):
        return f"{self.group}-console"

    def console_group(self):
        ends = self.ends()
        found = self.console(sum(ends.values()), "--group", self.console_name, "--from-beginning")
        check("places", {(r.partition, r.offset) for r in found}, {(p, o) for p in ends for o in range(ends[p])})
        check("committed offsets", self.committed(self.console_name), ends)

    def reset_offsets(self):
        reset = ["--reset-offsets", "--topic", self.topic]
        rows = self.group_rows(*reset, "--to-offset", "7", "--dry-run", group=self.console_name)
        check("offsets that are proposed", {int(row[3]) for row in rows}, {7})
        check("offsets of a dry run", self.committed(self.console_name), self.ends())
        self.group_rows(*reset, "--to-earliest", "--execute", group=self.console_name)
        check("offsets that were reset", self.committed(self.console_name), {p: 0 for p in range(PARTITIONS)})
        check("records after the reset", len(self.console(10, "--group", self.console_name)), 10)

    def delete_offsets(self):
        self.run(CONSUMER_GROUPS, "--delete-offsets", "--group", self.console_name, "--topic", self.topic)
        found = self.run(CONSUMER_GROUPS, "--describe", "--group", self.console_name, "--offsets")
        if self.topic in found.replace(self.console_name, ""):
            raise Failed(f"offsets are left: {found}")
        self.run(CONSUMER_GROUPS, "--delete", "--group", self.console_name)

    def log_dirs(self):
        said = self.run("LogDirsCommand", "--describe", "--topic-list", self.topic)
        described = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        sizes = {p["partition"]: p["size"] for b in described["brokers"] for d in b["logDirs"] for p in d["partitions"]}
        check("partitions", sorted(sizes), [f"{self.topic}-{p}" for p in range(PARTITIONS)])
        if min(sizes.values()) <= 0:
            raise Failed(f"sizes: {sizes}")

    def produce_fast(self):
        said = self.run("ProducerPerformance", "--topic", self.topic, "--num-records", str(PERF_RECORDS),
                        "--record-size", str(PERF_BYTES), "--throughput", "-1")
        if f"{PERF_RECORDS} records sent" not in said:
            raise Failed(said)

    def consume_fast(self):
        said = self.run("ConsumerPerformance", "--topic", self.topic, "--num-records", str(PERF_RECORDS),
                        "--timeout", str(IDLE_MS), "--hide-header")
        read = int(said.strip().splitlines()[-1].split(",")[4])
        if read < PERF_RECORDS:
            raise Failed(said)

    def verifiable_producer(self):
        said = self.run("VerifiableProducer", "--topic", self.topic, "--max-messages", str(VERIFIABLE_RECORDS))
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        check("acknowledged", sum(e["name"] == "producer_send_success" for e in events), VERIFIABLE_RECORDS)


main(Tools)
