// kafka-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"matrix"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// A member that saw nothing for so long commits what it has.
const idle = 50 * time.Millisecond

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

type client struct {
	broker, name string
	kafka.Client
}

func main() {
	matrix.Serve(func(broker, name string) (matrix.Client, error) {
		return &client{broker, name, kafka.Client{Addr: kafka.TCP(broker)}}, nil
	})
}

func (c *client) Create(ctx context.Context, partitions int) error {
	found, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: c.name, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	return found.Errors[c.name]
}

func (c *client) Produce(ctx context.Context, codec string, records []matrix.Record) error {
	partitions := map[string]int{}
	var batch []kafka.Message
	for _, r := range records {
		message := kafka.Message{Key: []byte(r.Key), Value: []byte(r.Value), Time: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
		}
		batch = append(batch, message)
		partitions[r.Key] = int(r.Partition)
	}
	writer := kafka.Writer{Addr: kafka.TCP(c.broker), Topic: c.name, RequiredAcks: kafka.RequireAll,
		Compression: codecs[codec], BatchTimeout: 10 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return partitions[string(m.Key)] })}
	err := writer.WriteMessages(ctx, batch...)
	return errors.Join(err, writer.Close())
}

func (c *client) reader(partition int, start int64) (*kafka.Reader, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{c.broker}, Topic: c.name, Partition: partition,
		MaxWait: 500 * time.Millisecond})
	return reader, reader.SetOffset(start)
}

func (c *client) Read(ctx context.Context, starts matrix.Offsets, count int) ([]matrix.Record, error) {
	all := make(chan kafka.Message)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for partition, start := range starts {
		reader, err := c.reader(int(partition), start)
		if err != nil {
			return nil, err
		}
		go func() {
			defer reader.Close()
			for {
				message, err := reader.ReadMessage(ctx)
				if err != nil {
					return
				}
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
			record := matrix.Record{Partition: int32(m.Partition), Timestamp: m.Time.UnixMilli(), Key: string(m.Key),
				Value: string(m.Value), Offset: m.Offset}
			for _, h := range m.Headers {
				record.Headers = append(record.Headers, [2]string{h.Key, string(h.Value)})
			}
			found = append(found, record)
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d records came", len(found), count)
		}
	}
	return found, nil
}

// Member is made of kafka.ConsumerGroup, since the group's Reader does not tell its partitions.
func (c *client) Member(ctx context.Context, progress *matrix.Progress) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: c.name, Brokers: []string{c.broker},
		Topics: []string{c.name}, HeartbeatInterval: matrix.HeartbeatInterval, StartOffset: kafka.FirstOffset})
	if err != nil {
		return err
	}
	for {
		generation, err := group.Next(ctx)
		if ctx.Err() != nil {
			return group.Close()
		}
		if err != nil {
			// As the group's Reader does, which goes on: a rebalance that another one interrupts ends here too.
			fmt.Fprintln(os.Stderr, "no generation:", err)
			continue
		}
		generation.Start(func(ctx context.Context) {
			var readers sync.WaitGroup
			for _, assigned := range generation.Assignments[c.name] {
				progress.Assigned(int32(assigned.ID))
				readers.Add(1)
				go func() {
					defer readers.Done()
					if err := c.consume(ctx, generation, assigned, progress); err != nil {
						fmt.Fprintln(os.Stderr, "a reader of the group:", err)
					}
				}()
			}
			readers.Wait()
			<-ctx.Done()
			progress.Revoked()
		})
	}
}

func (c *client) consume(ctx context.Context, generation *kafka.Generation, assigned kafka.PartitionAssignment,
	progress *matrix.Progress) error {
	reader, err := c.reader(assigned.ID, assigned.Offset)
	if err != nil {
		return err
	}
	defer reader.Close()
	next, committed := assigned.Offset, assigned.Offset
	for {
		waiting, cancel := context.WithTimeout(ctx, idle)
		message, err := reader.ReadMessage(waiting)
		cancel()
		if err == nil {
			progress.Seen(int32(message.Partition), message.Offset, message.Key)
			next = message.Offset + 1
			continue
		}
		if waiting.Err() == nil {
			return err
		}
		if next != committed {
			if err := generation.CommitOffsets(map[string]map[int]int64{c.name: {assigned.ID: next}}); err != nil {
				return err
			}
			committed = next
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (c *client) Committed(ctx context.Context) (matrix.Offsets, error) {
	found, err := c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.name,
		Topics: map[string][]int{c.name: {0, 1, 2, 3}}})
	if err != nil {
		return nil, err
	}
	offsets, err := matrix.Offsets{}, found.Error
	for _, p := range found.Topics[c.name] {
		offsets[int32(p.Partition)] = p.CommittedOffset
		err = errors.Join(err, p.Error)
	}
	return offsets, err
}

func (c *client) listed(ctx context.Context, of func(int) kafka.OffsetRequest,
	take func(kafka.PartitionOffsets) int64) (matrix.Offsets, error) {
	var asked []kafka.OffsetRequest
	for partition := range matrix.Partitions {
		asked = append(asked, of(partition))
	}
	found, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{c.name: asked}})
	if err != nil {
		return nil, err
	}
	offsets := matrix.Offsets{}
	for _, p := range found.Topics[c.name] {
		offsets[int32(p.Partition)] = take(p)
		err = errors.Join(err, p.Error)
	}
	return offsets, err
}

func (c *client) OffsetsForTime(ctx context.Context, atMs int64) (matrix.Offsets, error) {
	at := time.UnixMilli(atMs)
	return c.listed(ctx, func(partition int) kafka.OffsetRequest { return kafka.TimeOffsetOf(partition, at) },
		func(p kafka.PartitionOffsets) int64 {
			for offset := range p.Offsets {
				return offset
			}
			return -1
		})
}

func (c *client) Earliest(ctx context.Context, partition int32) (int64, error) {
	offsets, err := c.listed(ctx, kafka.FirstOffsetOf, func(p kafka.PartitionOffsets) int64 { return p.FirstOffset })
	return offsets[partition], err
}

func (c *client) Ends(ctx context.Context) (matrix.Offsets, error) {
	return c.listed(ctx, kafka.LastOffsetOf, func(p kafka.PartitionOffsets) int64 { return p.LastOffset })
}

func (c *client) Topics(ctx context.Context) ([]string, error) {
	found, err := c.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, topic := range found.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (c *client) DescribeTopic(ctx context.Context) (map[int32]int32, error) {
	found, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{c.name}})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, p := range found.Topics[0].Partitions {
		leaders[int32(p.ID)] = int32(p.Leader.ID)
	}
	return leaders, nil
}

func (c *client) DescribeConfigs(ctx context.Context) (map[string]string, error) {
	found, err := c.Client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.name}}})
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, entry := range found.Resources[0].ConfigEntries {
		configs[entry.ConfigName] = entry.ConfigValue
	}
	return configs, found.Resources[0].Error
}

func (c *client) DescribeGroup(ctx context.Context) (string, int, error) {
	found, err := c.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{c.name}})
	if err != nil {
		return "", 0, err
	}
	return found.Groups[0].GroupState, len(found.Groups[0].Members), found.Groups[0].Error
}

func (c *client) Groups(ctx context.Context) ([]string, error) {
	found, err := c.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range found.Groups {
		names = append(names, group.GroupID)
	}
	return names, found.Error
}

func (c *client) DeleteRecords(context.Context, int32, int64) error {
	return matrix.NotAvailable("kafka-go has no function that deletes records")
}

func (c *client) DeleteGroup(ctx context.Context) error {
	found, err := c.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{c.name}})
	if err != nil {
		return err
	}
	return found.Errors[c.name]
}

func (c *client) DeleteTopic(ctx context.Context) error {
	found, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.name}})
	if err != nil {
		return err
	}
	return found.Errors[c.name]
}
