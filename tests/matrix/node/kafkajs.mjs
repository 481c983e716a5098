// KafkaJS, with its codecs: snappy's plugin, lz4 of lz4-napi, zstd of Node.
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import zlib from 'node:zlib'
import { promisify } from 'node:util'
import { collect, HEARTBEAT_MS, serve } from './matrix.mjs'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const compress = promisify(zlib.zstdCompress)
const decompress = promisify(zlib.zstdDecompress)
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer), decompress: buffer => lz4.decompressFrame(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => compress(encoder.buffer), decompress: buffer => decompress(buffer)
})
const CODECS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD
}

const byPartition = (list, offset) => Object.fromEntries(list.map(o => [o.partition, Number(o[offset])]))

class Client {
  constructor (broker, name) {
    this.name = name
    // Its log goes to standard output otherwise.
    const logCreator = () => ({ log }) => console.error(log)
    this.kafka = new Kafka({ brokers: [broker], clientId: 'matrix', logLevel: logLevel.WARN, logCreator })
    this.connected = this.kafka.admin()
  }

  async admin () {
    await this.connected.connect()
    return this.connected
  }

  async create (partitions) {
    const admin = await this.admin()
    await admin.createTopics({ topics: [{ topic: this.name, numPartitions: partitions, replicationFactor: 1 }] })
  }

  async produce (codec, records) {
    const producer = this.kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
    await producer.connect()
    try {
      const messages = records.map(({ partition, timestamp, key, value, headers }) => (
        { partition, key, value, timestamp: String(timestamp), headers: Object.fromEntries(headers) }))
      await producer.send({ topic: this.name, acks: -1, compression: CODECS[codec], messages })
    } finally {
      await producer.disconnect()
    }
  }

  // KafkaJS consumes in a group only: this one is of no further use.
  read (starts, count) {
    return collect(count, async take => {
      const consumer = this.kafka.consumer({ groupId: `${this.name}-reader` })
      await consumer.connect()
      await consumer.subscribe({ topics: [this.name], fromBeginning: true })
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message: m }) => take({
          partition,
          timestamp: Number(m.timestamp),
          key: String(m.key),
          value: String(m.value),
          headers: Object.entries(m.headers).map(([name, value]) => [name, String(value)]),
          offset: Number(m.offset)
        })
      })
      for (const [partition, offset] of starts) consumer.seek({ topic: this.name, partition, offset: String(offset) })
      return () => consumer.disconnect()
    })
  }

  async member (progress) {
    const consumer = this.kafka.consumer({ groupId: this.name, heartbeatInterval: HEARTBEAT_MS, maxWaitTimeInMs: 500 })
    const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events
    consumer.on(GROUP_JOIN, e => { progress.held = new Set(e.payload.memberAssignment[this.name]) })
    consumer.on(REBALANCING, () => progress.held.clear())
    consumer.on(CRASH, e => { progress.error = e.payload.error })
    progress.end = () => consumer.disconnect()
    await consumer.connect()
    await consumer.subscribe({ topics: [this.name], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch: { topic, partition, messages }, resolveOffset, isRunning, isStale }) => {
        if (!isRunning() || isStale()) return
        for (const m of messages) {
          progress.seen.push([partition, Number(m.offset), String(m.key)])
          resolveOffset(m.offset)
        }
        const offset = String(Number(messages.at(-1).offset) + 1)
        await consumer.commitOffsets([{ topic, partition, offset }])
      }
    })
  }

  async committed () {
    const [found] = await (await this.admin()).fetchOffsets({ groupId: this.name, topics: [this.name] })
    return byPartition(found.partitions, 'offset')
  }

  async offsetsForTime (atMs) {
    return byPartition(await (await this.admin()).fetchTopicOffsetsByTimestamp(this.name, atMs), 'offset')
  }

  async earliest (partition) {
    return byPartition(await (await this.admin()).fetchTopicOffsets(this.name), 'low')[partition]
  }

  async ends () {
    return byPartition(await (await this.admin()).fetchTopicOffsets(this.name), 'high')
  }

  async topics () {
    return (await this.admin()).listTopics()
  }

  async describeTopic () {
    const { topics: [found] } = await (await this.admin()).fetchTopicMetadata({ topics: [this.name] })
    return Object.fromEntries(found.partitions.map(p => [p.partitionId, p.leader]))
  }

  async describeConfigs () {
    const asked = [{ type: ConfigResourceTypes.TOPIC, name: this.name }]
    const { resources: [found] } = await (await this.admin()).describeConfigs({ resources: asked })
    return Object.fromEntries(found.configEntries.map(c => [c.configName, c.configValue]))
  }

  async describeGroup () {
    const { groups: [found] } = await (await this.admin()).describeGroups([this.name])
    return [found.state, found.members.length]
  }

  async groups () {
    return (await (await this.admin()).listGroups()).groups.map(g => g.groupId)
  }

  async deleteRecords (partition, before) {
    const partitions = [{ partition, offset: String(before) }]
    await (await this.admin()).deleteTopicRecords({ topic: this.name, partitions })
  }

  async deleteGroup () {
    await (await this.admin()).deleteGroups([this.name])
  }

  async deleteTopic () {
    await (await this.admin()).deleteTopics({ topics: [this.name] })
  }
}

serve(Client)
