// Answers the requests of tests/matrix/remote.py for a client of Node's. Offsets are decimal strings or BigInts in
// these libraries, and numbers in the answers.
import { createInterface } from 'node:readline'

export const PARTITIONS = 4
export const PATIENCE_MS = 60_000
export const HEARTBEAT_MS = 500
const DRIVEN = process.argv.slice(2)

// What a member holds and what it has seen; `end` is set by the client, and ends it.
export class Progress {
  held = new Set()
  seen = []
  error = null

  take () {
    const state = { held: [...this.held], seen: this.seen, error: this.error && String(this.error) }
    this.seen = []
    return state
  }
}

// The library has no function for it; the message says which.
export class NotAvailable extends Error {}

// Waits for what resolves when `count` records were given to the function that `start` is called with.
export async function collect (count, start) {
  const found = []
  let done
  const all = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${found.length} of ${count} records came`)), PATIENCE_MS)
    done = () => { clearTimeout(timer); resolve() }
  })
  const stop = await start(record => {
    found.push(record)
    if (found.length === count) done()
  })
  try {
    await all
  } finally {
    await stop()
  }
  return found
}

export function serve (Client) {
  const [broker, name] = DRIVEN
  const client = new Client(broker, name)
  const members = []
  const requests = {
    create: r => client.create(r.partitions),
    produce: r => client.produce(r.codec, r.records),
    read: r => client.read(new Map(Object.entries(r.starts).map(([p, o]) => [Number(p), o])), r.count),
    async member () {
      const progress = new Progress()
      members.push(progress)
      client.member(progress).catch(error => { progress.error = error })
      return members.length - 1
    },
    member_state: r => members[r.member].take(),
    async close_member (r) {
      await members[r.member].end?.()
      return members[r.member].take()
    },
    committed: () => client.committed(),
    offsets_for_time: r => client.offsetsForTime(r.at_ms),
    earliest: r => client.earliest(r.partition),
    ends: () => client.ends(),
    topics: () => client.topics(),
    describe_topic: () => client.describeTopic(),
    describe_configs: () => client.describeConfigs(),
    describe_group: () => client.describeGroup(),
    groups: () => client.groups(),
    delete_records: r => client.deleteRecords(r.partition, r.before),
    delete_group: () => client.deleteGroup(),
    delete_topic: () => client.deleteTopic()
  }
  // One after the other.
  let last = Promise.resolve()
  const lines = createInterface({ input: process.stdin })
  lines.on('line', line => {
    last = last.then(async () => {
      let answer
      try {
        const request = JSON.parse(line)
        answer = { ok: await requests[request.do](request) ?? null }
      } catch (error) {
        if (!(error instanceof NotAvailable)) console.error(error)
        answer = error instanceof NotAvailable ? { na: error.message } : { error: String(error) }
      }
      process.stdout.write(JSON.stringify(answer) + '\n')
    })
  })
  lines.on('close', () => process.exit())
}
