"""The scenario that every client of the matrix goes through: stated once, for all of them.

A client is a small program that says how its library does what `Client` names. Those in Python make a `Client` and
call `main`; those in other languages are driven through `remote.py`. Each step prints one line of JSON: its name,
`ok`, `failed` or `n/a`, and words. `n/a` is only for what the client's library has no function for. scripts/clients
reads the lines, and takes the names of the steps from here.
"""

import hashlib
import json
import sys
import time
import traceback
from typing import NamedTuple

STEPS = ["create", "none", "gzip", "snappy", "lz4", "zstd", "read", "group", "commit", "resume", "time", "topic",
         "configs", "lag", "del-recs", "del-group", "del-topic"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 4
RECORDS_PER_CODEC = 200
RECORDS = RECORDS_PER_CODEC * len(CODECS)
MEMBERS = 3
# Nothing that a step waits for takes longer.
PATIENCE_SECONDS = 60
TICK_SECONDS = 0.05
DAY_MS = 86_400_000


class Record(NamedTuple):
    partition: int
    timestamp: int
    key: str
    value: str
    headers: tuple
    offset: int = -1


class NotAvailable(Exception):
    """The library has no function for the step; the message says which."""


class Failed(Exception):
    """The broker's answer is not what it has to be."""


class Member:
    """A member of a group that consumes, and commits behind each batch, until it is closed."""

    def __init__(self):
        self.seen = []  # (partition, offset, key), in the order of arrival
        self.error = None

    def assignment(self):
        """The partitions it holds now."""
        raise NotImplementedError

    def refresh(self):
        """Brings `seen`, `error` and the assignment up to date, where they don't come by themselves."""

    def close(self):
        """Leaves the group; what it has seen is committed then."""
        raise NotImplementedError


class Client:
    """What the scenario asks of a client. Offsets are dictionaries by partition."""

    name = None
    # Whether the producer lets the caller set a record's timestamp and choose its partition.
    sets_timestamps = True

    def __init__(self, broker, topic):
        self.broker, self.topic, self.group = broker, topic, topic

    def partition_of(self, index, key):
        return index % PARTITIONS

    def extras(self):
        """Steps of this client alone, before the deletions: names and functions."""
        return []

    def refuse(self, *_, **__):
        raise NotImplementedError

    create = produce = read = member = committed = offsets_for_time = earliest = ends = refuse
    describe_topic = describe_configs = describe_group = groups = topics = refuse
    delete_records = delete_group = delete_topic = refuse


def digest(records):
    """The checksum of what the records carry, wherever they lie."""
    lines = sorted(
        f"{r.timestamp}\t{r.key}\t{r.value}\t{','.join(f'{name}={value}' for name, value in r.headers)}\n"
        for r in records
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def record(index, base_ms, partition=-1):
    """The record of this number: the first thousand are the codecs', by turns; those after them are not compressed."""
    codec = CODECS[index // RECORDS_PER_CODEC] if index < RECORDS else "none"
    key = f"key-{index}"
    value = f"{key} " + "payload " * (index % 40)
    return Record(partition, base_ms + index * 1000, key, value, (("codec", codec), ("from", "matrix")))


def seen(member):
    return {(partition, offset) for partition, offset, _ in member.seen}


def wait(what, condition):
    """Waits until the condition's answer is true, and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise Failed(f"waited {PATIENCE_SECONDS} s in vain until {what}")
        time.sleep(TICK_SECONDS)
    return answer


def check(what, found, wanted):
    if found != wanted:
        raise Failed(f"{what}: {found} where {wanted} is right")


class Scenario:
    def __init__(self, client, base_ms):
        self.client, self.base_ms = client, base_ms
        self.started_ms = int(time.time() * 1000)
        self.next = 0  # number of the next record
        self.sent = []  # numbers of the records that were acknowledged
        self.ends = {p: 0 for p in range(PARTITIONS)}
        self.placed = {}  # (partition, offset) to key
        self.all = []  # what was read back
        self.live = None  # state and members of the group while three consume

    def run(self):
        steps = [self.create, *(lambda c=c: self.produce(RECORDS_PER_CODEC, c) for c in CODECS), self.read_back,
                 self.consume, self.committed, self.resume, self.time, self.topic, self.configs, self.lag,
                 self.delete_records, self.delete_group, self.delete_topic]
        named = list(zip(STEPS, steps, strict=True))
        named[STEPS.index("del-recs"):0] = self.client.extras()
        for name, step in named:
            started = time.monotonic()
            try:
                words, result = step() or "", "ok"
            except NotAvailable as reason:
                words, result = str(reason), "n/a"
            except Exception as error:  # Whatever a client throws is the step's failure.
                traceback.print_exc()
                words, result = f"{type(error).__name__}: {error}", "failed"
            seconds = round(time.monotonic() - started, 2)
            print(json.dumps({"step": name, "result": result, "words": words, "seconds": seconds}), flush=True)

    def create(self):
        self.client.create(PARTITIONS)
        wait("the topic has its partitions", lambda: len(self.client.describe_topic()) == PARTITIONS)

    def produce(self, count, codec="none"):
        numbers = range(self.next, self.next + count)
        self.next += count
        records = [record(index, self.base_ms) for index in numbers]
        records = [r._replace(partition=self.client.partition_of(index, r.key)) for index, r in zip(numbers, records)]
        self.client.produce(codec, records)
        self.sent += numbers
        for r in records:
            self.placed[r.partition, self.ends[r.partition]] = r.key
            self.ends[r.partition] += 1

    def read(self, starts):
        return self.client.read(starts, sum(self.ends[p] - o for p, o in starts.items()))

    def read_back(self):
        self.all = self.read({p: 0 for p in range(PARTITIONS)})
        check("records", len(self.all), len(self.sent))
        check("places", {(r.partition, r.offset): r.key for r in self.all}, self.placed)
        comparable, words = self.all, ""
        if not self.client.sets_timestamps:
            words = "its producer has no way to set a timestamp: the time of sending was checked"
            now_ms = int(time.time() * 1000)
            stray = [r for r in self.all if not self.started_ms - 1000 <= r.timestamp <= now_ms + 1000]
            check("records with a time not of this run", len(stray), 0)
            dates = {f"key-{index}": self.base_ms + index * 1000 for index in self.sent}
            comparable = [r._replace(timestamp=dates[r.key]) for r in self.all]
        check("checksum", digest(comparable), digest(record(index, self.base_ms) for index in self.sent))
        return words

    def consume(self):
        members = []

        def join():
            members.append(self.client.member())
            return members[-1]

        def fault():
            for m in members:
                m.refresh()
                if m.error:
                    raise Failed(f"a member ended: {m.error}")

        def shared(among):
            fault()
            held = [m.assignment() for m in among]
            return all(held) and sorted(p for partitions in held for p in partitions) == list(range(PARTITIONS))

        def seen_all():
            fault()
            return self.placed.keys() <= set().union(*map(seen, members))

        try:
            leaver, stayer = join(), join()
            wait("two members share the partitions", lambda: shared([leaver, stayer]))
            wait("two members have every record", seen_all)
            late = join()
            wait("three members share the partitions", lambda: shared([leaver, stayer, late]))
            try:
                self.live = self.client.describe_group()
            except NotAvailable:
                pass  # The step `lag` says so.
            self.produce(40)
            wait("three members have every record", seen_all)
            leaver.close()
            wait("the two that stay share the partitions", lambda: shared([stayer, late]))
            self.produce(40)
            wait("those that stay have every record", seen_all)
        finally:
            for m in members:
                m.close()
        everything = [s for m in members for s in m.seen]
        for partition, offset, key in everything:
            check(f"the key at {partition}/{offset}", key, self.placed.get((partition, offset)))
        twice = len(everything) - len(self.placed)
        return f"{twice} came twice" if twice else ""

    def committed(self):
        check("committed offsets", self.client.committed(), self.ends)

    def resume(self):
        committed = dict(self.ends)
        self.produce(40)
        member = self.client.member()
        try:
            fresh = {(p, o) for p, o in self.placed if o >= committed[p]}
            wait("a new member has what is new", lambda: member.refresh() or member.error or fresh <= seen(member))
        finally:
            member.close()
        if member.error:
            raise Failed(f"the member ended: {member.error}")
        check("records from below the committed offset", [s for s in member.seen if s[1] < committed[s[0]]], [])
        try:
            check("committed offsets", self.client.committed(), self.ends)
        except NotAvailable:
            pass  # The step `commit` says so.

    def time(self):
        if not self.all:
            raise Failed("nothing was read back")
        at_ms = next(r.timestamp for r in self.all if r.key == "key-501")
        wanted = {p: min(r.offset for r in self.all if r.partition == p and r.timestamp >= at_ms)
                  for p in range(PARTITIONS)}
        check("offsets for a time", self.client.offsets_for_time(at_ms), wanted)
        first = {}
        for r in self.read(wanted):
            first[r.partition] = min(first.get(r.partition, r.offset), r.offset)
        check("first offsets after the seek", first, wanted)
        late = self.client.offsets_for_time(int(time.time() * 1000) + DAY_MS)
        for p in range(PARTITIONS):
            if late.get(p) not in (None, -1, self.ends[p]):
                raise Failed(f"an offset for a time to come: {late}")

    def topic(self):
        leaders = self.client.describe_topic()
        check("partitions", sorted(leaders), list(range(PARTITIONS)))
        if len(set(leaders.values())) != 1 or min(leaders.values()) < 0:
            raise Failed(f"leaders: {leaders}")

    def configs(self):
        configs = self.client.describe_configs()
        for name in ["retention.ms", "max.message.bytes", "segment.bytes"]:
            if not (configs.get(name) or "").lstrip("-").isdigit():
                raise Failed(f"{name} is {configs.get(name)!r}")

    def lag(self):
        committed = self.client.committed()
        self.produce(20)
        ends = self.client.ends()
        check("end offsets", ends, self.ends)
        check("records behind", sum(ends[p] - committed[p] for p in ends), 20)
        check("the group while three consume", self.live, ("Stable", MEMBERS))
        check("the group afterwards", self.client.describe_group(), ("Empty", 0))
        if self.client.group not in self.client.groups():
            raise Failed("the list of groups lacks it")

    def delete_records(self):
        self.client.delete_records(0, 100)
        check("the first offset", self.client.earliest(0), 100)

    def delete_group(self):
        self.client.delete_group()
        if self.client.group in self.client.groups():
            raise Failed("the list of groups still has it")

    def delete_topic(self):
        self.client.delete_topic()
        wait("the topic is gone", lambda: self.client.topic not in self.client.topics())


def main(make):
    """PROGRAM HOST:PORT NAME BASE_MS: the broker, what topic and group are called, the first record's timestamp."""
    broker, name, base_ms = sys.argv[1:4]
    Scenario(make(broker, name), int(base_ms)).run()
