"""Drives a client in another language through the scenario.

    remote.py HOST:PORT NAME BASE_MS PROGRAM...

starts PROGRAM HOST:PORT NAME and asks it for what `scenario.Client` names: one line of JSON for each request, with
what to do in `do`, and one for each answer: `ok` with what was found, `error`, or `na` with the reason. A member of the
group lives in the program, under the number that `member` answered; `member_state` tells `held` and `error`, and of
`seen` what came since it was last asked; `close_member` answers the same once the member has left. What the program
says else goes to its standard error.
"""

import json
import subprocess
import sys

from scenario import Client, Failed, Member, NotAvailable, Record, main


class RemoteMember(Member):
    def __init__(self, client):
        super().__init__()
        self.client, self.held, self.closed = client, [], False
        self.number = client.ask("member")

    def take(self, state):
        self.held, self.error = state["held"], state["error"]
        self.seen += [tuple(place) for place in state["seen"]]

    def refresh(self):
        if not self.closed:
            self.take(self.client.ask("member_state", member=self.number))

    def assignment(self):
        return self.held

    def close(self):
        if not self.closed:
            self.closed = True
            self.take(self.client.ask("close_member", member=self.number))


class Remote(Client):
    def __init__(self, broker, topic):
        super().__init__(broker, topic)
        self.program = subprocess.Popen([*sys.argv[4:], broker, topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)

    def ask(self, what, **more):
        self.program.stdin.write(json.dumps({"do": what, **more}) + "\n")
        line = self.program.stdout.readline()
        if not line:
            raise Failed(f"the client's program ended with {self.program.wait()}")
        answer = json.loads(line)
        if "na" in answer:
            raise NotAvailable(answer["na"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["ok"]

    def ask_offsets(self, what, **more):
        return {int(partition): found for partition, found in self.ask(what, **more).items()}

    def create(self, partitions):
        self.ask("create", partitions=partitions)

    def produce(self, codec, records):
        self.ask("produce", codec=codec, records=[r._asdict() for r in records])

    def read(self, starts, count):
        found = self.ask("read", starts=starts, count=count)
        return [Record(**{**r, "headers": [tuple(h) for h in r["headers"]]}) for r in found]

    def member(self):
        return RemoteMember(self)

    def committed(self):
        return self.ask_offsets("committed")

    def offsets_for_time(self, at_ms):
        return self.ask_offsets("offsets_for_time", at_ms=at_ms)

    def earliest(self, partition):
        return self.ask("earliest", partition=partition)

    def ends(self):
        return self.ask_offsets("ends")

    def topics(self):
        return self.ask("topics")

    def describe_topic(self):
        return self.ask_offsets("describe_topic")

    def describe_configs(self):
        return self.ask("describe_configs")

    def describe_group(self):
        return tuple(self.ask("describe_group"))

    def groups(self):
        return self.ask("groups")

    def delete_records(self, partition, before):
        self.ask("delete_records", partition=partition, before=before)

    def delete_group(self):
        self.ask("delete_group")

    def delete_topic(self):
        self.ask("delete_topic")


main(Remote)
