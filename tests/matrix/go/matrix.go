// Package matrix answers the requests of tests/matrix/remote.py for a Go client.
package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Partitions of the topic.
const Partitions = 4

// Patience: no request takes longer.
const Patience = 60 * time.Second

// HeartbeatInterval of a group's members, so that they learn of a rebalance soon.
const HeartbeatInterval = 500 * time.Millisecond

// Record as the scenario has it.
type Record struct {
	Partition int32       `json:"partition"`
	Timestamp int64       `json:"timestamp"`
	Key       string      `json:"key"`
	Value     string      `json:"value"`
	Headers   [][2]string `json:"headers"`
	Offset    int64       `json:"offset"`
}

// Offsets by partition.
type Offsets map[int32]int64

// NotAvailable says that the library has no function for it, and which.
type NotAvailable string

func (n NotAvailable) Error() string { return string(n) }

// Client is what the scenario asks of a library.
type Client interface {
	Create(ctx context.Context, partitions int) error
	Produce(ctx context.Context, codec string, records []Record) error
	Read(ctx context.Context, starts Offsets, count int) ([]Record, error)
	// Member starts to consume in the group: it reports to the progress, and ends when the context does.
	Member(ctx context.Context, progress *Progress) error
	Committed(ctx context.Context) (Offsets, error)
	OffsetsForTime(ctx context.Context, atMs int64) (Offsets, error)
	Earliest(ctx context.Context, partition int32) (int64, error)
	Ends(ctx context.Context) (Offsets, error)
	Topics(ctx context.Context) ([]string, error)
	DescribeTopic(ctx context.Context) (map[int32]int32, error)
	DescribeConfigs(ctx context.Context) (map[string]string, error)
	DescribeGroup(ctx context.Context) (state string, members int, err error)
	Groups(ctx context.Context) ([]string, error)
	DeleteRecords(ctx context.Context, partition int32, before int64) error
	DeleteGroup(ctx context.Context) error
	DeleteTopic(ctx context.Context) error
}

// Progress of a member: what it holds and what it has seen.
type Progress struct {
	lock sync.Mutex
	held map[int32]bool
	seen [][3]any
	stop context.CancelFunc
	done chan error
}

// Assigned adds partitions to those that the member holds.
func (p *Progress) Assigned(partitions ...int32) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, partition := range partitions {
		p.held[partition] = true
	}
}

// Revoked takes partitions away, all of them if none is named.
func (p *Progress) Revoked(partitions ...int32) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if len(partitions) == 0 {
		clear(p.held)
	}
	for _, partition := range partitions {
		delete(p.held, partition)
	}
}

// Seen tells of a record that came.
func (p *Progress) Seen(partition int32, offset int64, key []byte) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.seen = append(p.seen, [3]any{partition, offset, string(key)})
}

func (p *Progress) take(err error) map[string]any {
	p.lock.Lock()
	defer p.lock.Unlock()
	held := []int32{}
	for partition := range p.held {
		held = append(held, partition)
	}
	state := map[string]any{"held": held, "seen": p.seen, "error": nil}
	if err != nil {
		state["error"] = err.Error()
	}
	p.seen = [][3]any{}
	return state
}

type request struct {
	Do         string
	Partitions int
	Codec      string
	Records    []Record
	Starts     Offsets
	Count      int
	Member     int
	AtMs       int64 `json:"at_ms"`
	Partition  int32
	Before     int64
}

// Serve answers requests until there are no more. The arguments are the broker's address, and a name for the topic
// and the group.
func Serve(make func(broker, name string) (Client, error)) {
	client, err := make(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := server{client: client}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var answer map[string]any
		var r request
		if err = json.Unmarshal(line, &r); err == nil {
			var found any
			found, err = s.answer(r)
			answer = map[string]any{"ok": found}
		}
		if reason, is := err.(NotAvailable); is {
			answer = map[string]any{"na": reason}
		} else if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

type server struct {
	client  Client
	members []*Progress
}

func (s *server) answer(r request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c := s.client
	switch r.Do {
	case "create":
		return nil, c.Create(ctx, r.Partitions)
	case "produce":
		return nil, c.Produce(ctx, r.Codec, r.Records)
	case "read":
		return c.Read(ctx, r.Starts, r.Count)
	case "member":
		return s.join()
	case "member_state":
		return s.members[r.Member].state()
	case "close_member":
		return s.members[r.Member].end()
	case "committed":
		return c.Committed(ctx)
	case "offsets_for_time":
		return c.OffsetsForTime(ctx, r.AtMs)
	case "earliest":
		return c.Earliest(ctx, r.Partition)
	case "ends":
		return c.Ends(ctx)
	case "topics":
		return c.Topics(ctx)
	case "describe_topic":
		return c.DescribeTopic(ctx)
	case "describe_configs":
		return c.DescribeConfigs(ctx)
	case "describe_group":
		state, members, err := c.DescribeGroup(ctx)
		return []any{state, members}, err
	case "groups":
		return c.Groups(ctx)
	case "delete_records":
		return nil, c.DeleteRecords(ctx, r.Partition, r.Before)
	case "delete_group":
		return nil, c.DeleteGroup(ctx)
	case "delete_topic":
		return nil, c.DeleteTopic(ctx)
	}
	return nil, fmt.Errorf("there is no request %q", r.Do)
}

func (s *server) join() (int, error) {
	ctx, stop := context.WithCancel(context.Background())
	progress := &Progress{held: map[int32]bool{}, seen: [][3]any{}, stop: stop, done: make(chan error, 1)}
	s.members = append(s.members, progress)
	go func() { progress.done <- s.client.Member(ctx, progress) }()
	return len(s.members) - 1, nil
}

func (p *Progress) state() (any, error) {
	select {
	case err := <-p.done:
		p.done <- err
		if err == nil {
			err = fmt.Errorf("the member ended by itself")
		}
		return p.take(err), nil
	default:
		return p.take(nil), nil
	}
}

func (p *Progress) end() (any, error) {
	p.stop()
	select {
	case err := <-p.done:
		p.done <- err
		return p.take(err), nil
	case <-time.After(Patience):
		return nil, fmt.Errorf("the member did not end in %v", Patience)
	}
}
