// @platformatic/kafka.
import {
  Admin, ConfigResourceTypes, Consumer, ListOffsetTimestamps, Producer, stringDeserializers, stringSerializers
} from '@platformatic/kafka'
import { setTimeout } from 'node:timers/promises'
import { collect, HEARTBEAT_MS, PARTITIONS, serve } from './matrix.mjs'

// A member to which nothing happened for so long has all that there is for it, and has heard of each rebalance.
const SETTLE_MS = 1500
const TICK_MS = 50
const ALL = Array.from({ length: PARTITIONS }, (_, partition) => partition)

class Client {
  constructor (broker, name) {
    this.name = name
    this.common = { clientId: 'matrix', bootstrapBrokers: [broker] }
    this.connected = new Admin(this.common)
  }

  consumer (groupId, more) {
    return new Consumer({ ...this.common, groupId, deserializers: stringDeserializers, autocommit: false, ...more })
  }

  async create (partitions) {
    await this.connected.createTopics({ topics: [this.name], partitions, replicas: 1 })
  }

  async produce (codec, records) {
    const producer = new Producer({ ...this.common, serializers: stringSerializers })
    try {
      const messages = records.map(({ partition, timestamp, key, value, headers }) => (
        { topic: this.name, partition, key, value, timestamp: BigInt(timestamp), headers: new Map(headers) }))
      await producer.send({ acks: -1, compression: codec, messages })
    } finally {
      await producer.close()
    }
  }

  // It consumes in a group only: this one is of no further use.
  read (starts, count) {
    return collect(count, async take => {
      const consumer = this.consumer(`${this.name}-reader`)
      const offsets = [...starts].map(([partition, offset]) => (
        { topic: this.name, partition, offset: BigInt(offset) }))
      const stream = await consumer.consume({ topics: [this.name], mode: 'manual', offsets })
      stream.on('data', m => take({
        partition: m.partition,
        timestamp: Number(m.timestamp),
        key: m.key,
        value: m.value,
        headers: [...m.headers],
        offset: Number(m.offset)
      }))
      return async () => {
        await stream.close()
        await consumer.close(true)
      }
    })
  }

  async member (progress) {
    const consumer = this.consumer(this.name, { heartbeatInterval: HEARTBEAT_MS, maxWaitTime: 500 })
    let last, isJoining
    consumer.on('consumer:group:join', ({ assignments }) => {
      progress.held = new Set(assignments?.find(a => a.topic === this.name)?.partitions)
      isJoining = false
      last = Date.now()
    })
    consumer.on('consumer:group:rebalance', () => {
      progress.held.clear()
      isJoining = true
    })
    const started = consumer.consume({ topics: [this.name], mode: 'committed', fallbackMode: 'earliest' })
    progress.end = async () => {
      const stream = await started
      // One that leaves while it joins leaves a member behind that nobody is. And after a rebalance it may read on in a
      // partition that is no longer its own, and its commits there set those of the right member back, unless it gets
      // to the end.
      last = Date.now()
      while (isJoining || Date.now() - last < SETTLE_MS) await setTimeout(TICK_MS)
      await stream.close()
      await ended
      await consumer.close(true)
    }
    const ended = started.then(async stream => {
      for await (const message of stream) {
        progress.seen.push([message.partition, Number(message.offset), message.key])
        // A rebalance may come between; the record comes again then.
        await message.commit().catch(console.error)
        last = Date.now()
      }
    })
    await ended
  }

  async committed () {
    const [found] = await this.connected.listConsumerGroupOffsets({ groups: [this.name] })
    const topic = found.topics.find(t => t.name === this.name)
    return Object.fromEntries(topic?.partitions.map(p => [p.partitionIndex, Number(p.committedOffset)]) ?? [])
  }

  async offsets (timestamp) {
    const partitions = ALL.map(partitionIndex => ({ partitionIndex, timestamp }))
    const [found] = await this.connected.listOffsets({ topics: [{ name: this.name, partitions }] })
    return Object.fromEntries(found.partitions.map(p => [p.partitionIndex, Number(p.offset)]))
  }

  async offsetsForTime (atMs) {
    return this.offsets(BigInt(atMs))
  }

  async earliest (partition) {
    return (await this.offsets(ListOffsetTimestamps.EARLIEST))[partition]
  }

  async ends () {
    return this.offsets(ListOffsetTimestamps.LATEST)
  }

  async topics () {
    return this.connected.listTopics()
  }

  async describeTopic () {
    const { topics } = await this.connected.metadata({ topics: [this.name], forceUpdate: true })
    return Object.fromEntries(topics.get(this.name).partitions.map((p, partition) => [partition, p.leader]))
  }

  async describeConfigs () {
    const resources = [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: this.name }]
    const [found] = await this.connected.describeConfigs({ resources })
    return Object.fromEntries(found.configs.map(c => [c.name, c.value]))
  }

  async describeGroup () {
    const found = (await this.connected.describeGroups({ groups: [this.name] })).get(this.name)
    const state = found.state.toLowerCase()
    return [state[0].toUpperCase() + state.slice(1), found.members.size]
  }

  async groups () {
    return [...(await this.connected.listGroups()).keys()]
  }

  async deleteRecords (partition, before) {
    const partitions = [{ partition, offset: BigInt(before) }]
    await this.connected.deleteRecords({ topics: [{ name: this.name, partitions }] })
  }

  async deleteGroup () {
    await this.connected.deleteGroups({ groups: [this.name] })
  }

  async deleteTopic () {
    await this.connected.deleteTopics({ topics: [this.name] })
  }
}

serve(Client)
