// franz-go, with its kadm.
package main

import (
	"context"
	"matrix"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

type client struct {
	broker, name string
	admin        *kadm.Client
}

func main() {
	matrix.Serve(func(broker, name string) (matrix.Client, error) {
		admin, err := kadm.NewOptClient(kgo.SeedBrokers(broker))
		return &client{broker, name, admin}, err
	})
}

func (c *client) Create(ctx context.Context, partitions int) error {
	_, err := c.admin.CreateTopic(ctx, int32(partitions), 1, nil, c.name)
	return err
}

func (c *client) Produce(ctx context.Context, codec string, records []matrix.Record) error {
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.broker), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer producer.Close()
	var batch []*kgo.Record
	for _, r := range records {
		record := &kgo.Record{Topic: c.name, Partition: r.Partition, Key: []byte(r.Key), Value: []byte(r.Value),
			Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
		}
		batch = append(batch, record)
	}
	return producer.ProduceSync(ctx, batch...).FirstErr()
}

func (c *client) Read(ctx context.Context, starts matrix.Offsets, count int) ([]matrix.Record, error) {
	at := map[int32]kgo.Offset{}
	for partition, offset := range starts {
		at[partition] = kgo.NewOffset().At(offset)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.broker),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.name: at}))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []matrix.Record{}
	for len(found) < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, r := range fetches.Records() {
			record := matrix.Record{Partition: r.Partition, Timestamp: r.Timestamp.UnixMilli(), Key: string(r.Key),
				Value: string(r.Value), Offset: r.Offset}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, [2]string{h.Key, string(h.Value)})
			}
			found = append(found, record)
		}
	}
	return found, nil
}

func (c *client) Member(ctx context.Context, progress *matrix.Progress) error {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.broker), kgo.ConsumerGroup(c.name), kgo.ConsumeTopics(c.name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(matrix.HeartbeatInterval),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			progress.Assigned(assigned[c.name]...)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
			if partitions := revoked[c.name]; len(partitions) > 0 {
				progress.Revoked(partitions...)
			}
		}))
	if err != nil {
		return err
	}
	defer consumer.CloseAllowingRebalance()
	for {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { progress.Seen(r.Partition, r.Offset, r.Key) })
		if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
		consumer.AllowRebalance()
	}
}

func (c *client) Committed(ctx context.Context) (matrix.Offsets, error) {
	found, err := c.admin.FetchOffsets(ctx, c.name)
	offsets := matrix.Offsets{}
	found.Each(func(r kadm.OffsetResponse) { offsets[r.Partition] = r.At })
	return offsets, err
}

func (c *client) listed(found kadm.ListedOffsets, err error) (matrix.Offsets, error) {
	if err == nil {
		err = found.Error()
	}
	offsets := matrix.Offsets{}
	found.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, err
}

func (c *client) OffsetsForTime(ctx context.Context, atMs int64) (matrix.Offsets, error) {
	return c.listed(c.admin.ListOffsetsAfterMilli(ctx, atMs, c.name))
}

func (c *client) Earliest(ctx context.Context, partition int32) (int64, error) {
	offsets, err := c.listed(c.admin.ListStartOffsets(ctx, c.name))
	return offsets[partition], err
}

func (c *client) Ends(ctx context.Context) (matrix.Offsets, error) {
	return c.listed(c.admin.ListEndOffsets(ctx, c.name))
}

func (c *client) Topics(ctx context.Context) ([]string, error) {
	found, err := c.admin.ListTopics(ctx)
	return found.Names(), err
}

func (c *client) DescribeTopic(ctx context.Context) (map[int32]int32, error) {
	found, err := c.admin.ListTopics(ctx, c.name)
	leaders := map[int32]int32{}
	for _, p := range found[c.name].Partitions {
		leaders[p.Partition] = p.Leader
	}
	return leaders, err
}

func (c *client) DescribeConfigs(ctx context.Context) (map[string]string, error) {
	found, err := c.admin.DescribeTopicConfigs(ctx, c.name)
	if err != nil {
		return nil, err
	}
	resource, err := found.On(c.name, nil)
	configs := map[string]string{}
	for _, config := range resource.Configs {
		configs[config.Key] = config.MaybeValue()
	}
	return configs, err
}

func (c *client) DescribeGroup(ctx context.Context) (string, int, error) {
	found, err := c.admin.DescribeGroups(ctx, c.name)
	if err == nil {
		err = found.Error()
	}
	return found[c.name].State, len(found[c.name].Members), err
}

func (c *client) Groups(ctx context.Context) ([]string, error) {
	found, err := c.admin.ListGroups(ctx)
	return found.Groups(), err
}

func (c *client) DeleteRecords(ctx context.Context, partition int32, before int64) error {
	found, err := c.admin.DeleteRecords(ctx, kadm.Offsets{c.name: {partition: {
		Topic: c.name, Partition: partition, At: before}}})
	if err == nil {
		err = found.Error()
	}
	return err
}

func (c *client) DeleteGroup(ctx context.Context) error {
	_, err := c.admin.DeleteGroup(ctx, c.name)
	return err
}

func (c *client) DeleteTopic(ctx context.Context) error {
	_, err := c.admin.DeleteTopic(ctx, c.name)
	return err
}
