package slurm

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"lockstep/pkg/launch/site"
)

// sinfoFields are the fields for Cluster: partition, state, nodes, CPUs, GRES, time limit,
// partition with * if it is the default, and memory.
const sinfoFields = "%R|%a|%D|%c|%G|%l|%P|%m"

// ReadCluster returns the partitions and reservations of the cluster.
func (c Client) ReadCluster(ctx context.Context) (*site.Cluster, error) {
	text, err := c.runCommand(ctx, "sinfo", "--noheader", "--format="+sinfoFields)
	if err != nil {
		return nil, err
	}
	cluster := &site.Cluster{Now: time.Now()}
	if cluster.Partitions, err = parseSinfo(text); err != nil {
		return nil, err
	}
	if text, err = c.runCommand(ctx, "scontrol", "--oneliner", "show", "reservation"); err != nil {
		return nil, err
	}
	cluster.Reservations = parseReservations(text)
	return cluster, nil
}

var gpusPattern = regexp.MustCompile(`(?:^|,)gpu(?::[^:,(]+)*?:(\d+)`)

// parseSinfo parses sinfoFields: one line for each group of equal nodes of a partition.
func parseSinfo(text string) ([]site.Partition, error) {
	var all []site.Partition
	index := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := strings.Split(line, fieldSeparator)
		if len(f) != strings.Count(sinfoFields, fieldSeparator)+1 {
			return nil, fmt.Errorf("read output of sinfo: got %q, want the fields %s", line, sinfoFields)
		}
		i, known := index[f[0]]
		if !known {
			i = len(all)
			index[f[0]] = i
			all = append(all, site.Partition{Name: f[0], State: f[1], TimeLimit: parseTimeLimit(f[5]), Default: strings.HasSuffix(f[6], "*"), NoGPUs: true})
		}
		p := &all[i]
		nodes, _ := strconv.Atoi(f[2])
		cpus, _ := strconv.Atoi(strings.TrimSuffix(f[3], "+")) // 8+: at least 8
		memory, _ := strconv.Atoi(strings.TrimSuffix(f[7], "+"))
		p.MemoryMiB = max(p.MemoryMiB, memory)
		gpus := 0
		for _, m := range gpusPattern.FindAllStringSubmatch(f[4], -1) {
			n, _ := strconv.Atoi(m[1])
			gpus += n
		}
		p.Nodes += nodes
		p.CPUsPerNode, p.GPUsPerNode = max(p.CPUsPerNode, cpus), max(p.GPUsPerNode, gpus)
		p.NoGPUs = p.NoGPUs && gpus == 0
	}
	return all, nil
}

func parseReservations(text string) []site.Reservation {
	var all []site.Reservation
	for line := range strings.Lines(text) {
		var r site.Reservation
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			switch name {
			case "ReservationName":
				r.Name = value
			case "StartTime":
				r.Start = parseTime(value)
			case "EndTime":
				r.End = parseTime(value)
			}
		}
		if r.Name != "" {
			all = append(all, r)
		}
	}
	return all
}

func parseTimeLimit(text string) time.Duration {
	days, clock, ok := strings.Cut(text, "-")
	if !ok {
		days, clock = "0", text
	}
	total, err := strconv.Atoi(days)
	if err != nil {
		return 0
	}
	parts := strings.Split(clock, ":")
	for len(parts) < 3 {
		parts = append([]string{"0"}, parts...) // minutes:seconds
	}
	for i, scale := range []int{24, 60, 60} {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return 0 // infinite, n/a
		}
		total = total*scale + n
	}
	return time.Duration(total) * time.Second
}
