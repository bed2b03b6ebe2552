package preflight

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockstep/pkg/collective/rendezvous"
	"lockstep/pkg/internal/process"
	"lockstep/pkg/launch"
	"lockstep/pkg/runs"
)

const localTaskCount = 2

// Local checks this machine with two processes, which join each other over the loopback interface.
func Local(ctx context.Context) (*Report, error) {
	r, err := checkMachine(ctx)
	if err != nil {
		return nil, fmt.Errorf("check this machine: %w", err)
	}
	return r, nil
}

func checkMachine(ctx context.Context) (*Report, error) {
	logs, err := runs.ResolveLogs("logs")
	if err != nil {
		return nil, err
	}
	binary, err := launch.Binary(ctx)
	if err != nil {
		return nil, err
	}
	port, err := rendezvous.FindFreePort(ctx)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	node, err := NodeOptions{ID: id, Logs: logs}.encodeArgument()
	if err != nil {
		return nil, err
	}
	remove, err := writeFolderMarkers(filepath.Join(logs, markerName(id)), id)
	defer remove()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	secret := rand.Text()
	limited, cancel := process.WithTimeout(ctx, taskTimeout+5*time.Second)
	defer cancel()
	var output [localTaskCount]bytes.Buffer
	var errs [localTaskCount]error
	var wg sync.WaitGroup
	for rank := range localTaskCount {
		cmd := exec.CommandContext(limited, binary, "doctor", "--node", node)
		cmd.Env = taskEnvironment(rank, port, secret)
		cmd.Stdout, cmd.Stderr = &output[rank], &output[rank]
		cmd.WaitDelay = time.Second
		wg.Go(func() { errs[rank] = cmd.Run() })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ranks := map[int]*rankOutput{}
	var others []string
	for rank := range localTaskCount {
		read, more := readRankOutputs(&output[rank], id)
		if read[rank] != nil {
			ranks[rank] = read[rank]
		}
		others = append(others, more...)
		var exit *exec.ExitError
		if err := errs[rank]; err != nil && !errors.As(err, &exit) {
			return nil, err
		} else if err != nil {
			others = append(others, fmt.Sprintf("task %d: %v", rank, err))
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	r := newReport(localTaskCount, slices.Repeat([]string{host}, localTaskCount), ranks, others)
	r.RunSeconds = time.Since(begin).Seconds()
	return r, nil
}

func taskEnvironment(rank, port int, secret string) []string {
	size := strconv.Itoa(localTaskCount)
	set := []string{
		"RANK=" + strconv.Itoa(rank), "LOCAL_RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + size, "LOCAL_WORLD_SIZE=" + size,
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port), "LOCKSTEP_TOKEN=" + secret,
	}
	return process.ModifiedEnvironment(set, rendezvous.RankVariables()...)
}
