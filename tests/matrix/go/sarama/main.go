// sarama.
package main

import (
	"context"
	"fmt"
	"matrix"
	"time"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

type client struct {
	broker, name string
	conn         sarama.Client
	admin        sarama.ClusterAdmin
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.AllowAutoTopicCreation = false
	return config
}

func main() {
	matrix.Serve(func(broker, name string) (matrix.Client, error) {
		conn, err := sarama.NewClient([]string{broker}, config())
		if err != nil {
			return nil, err
		}
		admin, err := sarama.NewClusterAdminFromClient(conn)
		return &client{broker, name, conn, admin}, err
	})
}

func (c *client) Create(_ context.Context, partitions int) error {
	return c.admin.CreateTopic(c.name, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false)
}

func (c *client) Produce(_ context.Context, codec string, records []matrix.Record) error {
	config := config()
	config.Producer.Compression = codecs[codec]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{c.broker}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var batch []*sarama.ProducerMessage
	for _, r := range records {
		message := &sarama.ProducerMessage{Topic: c.name, Partition: r.Partition, Key: sarama.StringEncoder(r.Key),
			Value: sarama.StringEncoder(r.Value), Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h[0]), Value: []byte(h[1])})
		}
		batch = append(batch, message)
	}
	return producer.SendMessages(batch)
}

func (c *client) Read(ctx context.Context, starts matrix.Offsets, count int) ([]matrix.Record, error) {
	consumer, err := sarama.NewConsumerFromClient(c.conn)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	all := make(chan *sarama.ConsumerMessage)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for partition, start := range starts {
		messages, err := consumer.ConsumePartition(c.name, partition, start)
		if err != nil {
			return nil, err
		}
		defer messages.AsyncClose()
		go func() {
			for message := range messages.Messages() {
				select {
				case all <- message:
				case <-ctx.Done():
				}
			}
		}()
	}
	found := []matrix.Record{}
	for len(found) < count {
		select {
		case m := <-all:
			record := matrix.Record{Partition: m.Partition, Timestamp: m.Timestamp.UnixMilli(), Key: string(m.Key),
				Value: string(m.Value), Offset: m.Offset}
			for _, h := range m.Headers {
				record.Headers = append(record.Headers, [2]string{string(h.Key), string(h.Value)})
			}
			found = append(found, record)
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d records came", len(found), count)
		}
	}
	return found, nil
}

type member struct{ progress *matrix.Progress }

func (m member) Setup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		m.progress.Assigned(partitions...)
	}
	return nil
}

func (m member) Cleanup(sarama.ConsumerGroupSession) error {
	m.progress.Revoked()
	return nil
}

func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.progress.Seen(message.Partition, message.Offset, message.Key)
		session.MarkMessage(message, "")
		if len(claim.Messages()) == 0 {
			session.Commit()
		}
	}
	session.Commit()
	return nil
}

func (c *client) Member(ctx context.Context, progress *matrix.Progress) error {
	config := config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = matrix.HeartbeatInterval
	group, err := sarama.NewConsumerGroup([]string{c.broker}, c.name, config)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{c.name}, member{progress}); err != nil {
			group.Close()
			return err
		}
	}
	return group.Close()
}

func (c *client) Committed(context.Context) (matrix.Offsets, error) {
	found, err := c.admin.ListConsumerGroupOffsets(c.name, nil)
	if err != nil {
		return nil, err
	}
	offsets := matrix.Offsets{}
	for partition, block := range found.Blocks[c.name] {
		if block.Err != sarama.ErrNoError {
			return nil, block.Err
		}
		offsets[partition] = block.Offset
	}
	return offsets, nil
}

func (c *client) offsets(at int64) (matrix.Offsets, error) {
	offsets := matrix.Offsets{}
	for partition := int32(0); partition < matrix.Partitions; partition++ {
		offset, err := c.conn.GetOffset(c.name, partition, at)
		if err != nil {
			return nil, err
		}
		offsets[partition] = offset
	}
	return offsets, nil
}

func (c *client) OffsetsForTime(_ context.Context, atMs int64) (matrix.Offsets, error) {
	return c.offsets(atMs)
}

func (c *client) Earliest(_ context.Context, partition int32) (int64, error) {
	return c.conn.GetOffset(c.name, partition, sarama.OffsetOldest)
}

func (c *client) Ends(context.Context) (matrix.Offsets, error) {
	return c.offsets(sarama.OffsetNewest)
}

func (c *client) Topics(context.Context) ([]string, error) {
	found, err := c.admin.ListTopics()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return names, err
}

func (c *client) DescribeTopic(context.Context) (map[int32]int32, error) {
	found, err := c.admin.DescribeTopics([]string{c.name})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range found[0].Partitions {
		leaders[p.ID] = p.Leader
	}
	return leaders, nil
}

func (c *client) DescribeConfigs(context.Context) (map[string]string, error) {
	found, err := c.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.name})
	configs := map[string]string{}
	for _, entry := range found {
		configs[entry.Name] = entry.Value
	}
	return configs, err
}

func (c *client) DescribeGroup(context.Context) (string, int, error) {
	found, err := c.admin.DescribeConsumerGroups([]string{c.name})
	if err != nil {
		return "", 0, err
	}
	if found[0].Err != sarama.ErrNoError {
		return "", 0, found[0].Err
	}
	return found[0].State, len(found[0].Members), nil
}

func (c *client) Groups(context.Context) ([]string, error) {
	found, err := c.admin.ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return names, err
}

func (c *client) DeleteRecords(_ context.Context, partition int32, before int64) error {
	return c.admin.DeleteRecords(c.name, map[int32]int64{partition: before})
}

func (c *client) DeleteGroup(context.Context) error { return c.admin.DeleteConsumerGroup(c.name) }

func (c *client) DeleteTopic(context.Context) error { return c.admin.DeleteTopic(c.name) }
