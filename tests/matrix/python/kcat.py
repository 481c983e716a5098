"""kcat. It has no admin functions: the topic is created as a client's first question creates it, so that the broker's
`num.partitions` has to be the scenario's."""

import json
import re
import signal
import subprocess
import threading

from scenario import Client, Failed, Member, NotAvailable, PARTITIONS, PATIENCE_SECONDS, Record, main

NO_ADMIN = "kcat has no admin functions"


def parse(line):
    m = json.loads(line)
    headers = tuple(zip(m["headers"][::2], m["headers"][1::2]))
    return Record(m["partition"], m["ts"], m["key"], m["payload"], headers, m["offset"])


class KcatMember(Member):
    def __init__(self, client):
        super().__init__()
        self.held, self.closing = set(), False
        self.program = subprocess.Popen(
            ["kcat", "-b", client.broker, "-G", client.group, "-J", "-u", "-X", "auto.offset.reset=earliest",
             "-X", "heartbeat.interval.ms=500", "-X", "auto.commit.interval.ms=200", client.topic],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=work) for work in (self.take_records, self.take_words)]
        for thread in self.threads:
            thread.start()

    def take_records(self):
        for line in self.program.stdout:
            r = parse(line)
            self.seen.append((r.partition, r.offset, r.key))

    def take_words(self):
        for line in self.program.stderr:
            if "assigned:" in line:
                self.held = {int(p) for p in re.findall(r"\[(\d+)\]", line)}
            elif "revoked:" in line:
                self.held = set()
            elif "ERROR" in line and not self.closing:
                self.error = line.strip()

    def assignment(self):
        return self.held

    def close(self):
        self.closing = True
        self.program.send_signal(signal.SIGTERM)
        if self.program.wait(PATIENCE_SECONDS) not in (0, -signal.SIGTERM):
            self.error = f"kcat ended with {self.program.returncode}"
        for thread in self.threads:
            thread.join()


class Kcat(Client):
    sets_timestamps = False

    def run(self, *arguments, **more):
        done = subprocess.run(["kcat", "-b", self.broker, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS, **more)
        if done.returncode:
            raise Failed(f"kcat {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def create(self, partitions):
        self.run("-L", "-t", self.topic)

    def produce(self, codec, records):
        for partition in range(PARTITIONS):
            mine = [r for r in records if r.partition == partition]
            headers = [argument for name, value in mine[0].headers for argument in ("-H", f"{name}={value}")]
            self.run("-P", "-t", self.topic, "-p", str(partition), "-z", codec, "-K", "\\t", *headers, "-X", "acks=all",
                     input="".join(f"{r.key}\t{r.value}\n" for r in mine))

    def read(self, starts, count):
        found = []
        for partition, offset in starts.items():
            lines = self.run("-C", "-t", self.topic, "-p", str(partition), "-o", str(offset), "-e", "-q", "-J")
            found += map(parse, lines.splitlines())
        return found

    def member(self):
        return KcatMember(self)

    def offsets_for_time(self, at_ms):
        asked = [argument for p in range(PARTITIONS) for argument in ("-t", f"{self.topic}:{p}:{at_ms}")]
        return {int(p): int(o) for p, o in re.findall(r"\[(\d+)\] offset (-?\d+)", self.run("-Q", *asked))}

    def metadata(self, *arguments):
        return json.loads(self.run("-L", "-J", *arguments))["topics"]

    def describe_topic(self):
        topic, = self.metadata("-t", self.topic)
        return {p["partition"]: p["leader"] for p in topic["partitions"]}

    def committed(self):
        raise NotAvailable("kcat prints no committed offsets; the step `resume` uses them")

    def refuse(self, *_):
        raise NotAvailable(NO_ADMIN)

    describe_configs = describe_group = delete_records = delete_group = delete_topic = refuse


main(Kcat)
