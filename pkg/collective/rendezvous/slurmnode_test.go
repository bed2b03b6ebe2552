package rendezvous

import (
	"os"
	"path/filepath"
	"testing"
)

// TestResolveMaster: .invalid is a domain whose names never resolve (RFC 6761).
func TestResolveMaster(t *testing.T) {
	const node = "n1.invalid"
	openMPI := map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
	env := func(more map[string]string) func(string) string {
		all := map[string]string{
			"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
			"SLURM_NODEID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NODELIST": node + ",n2.invalid", "SLURM_JOB_NODELIST": node + ",n2.invalid", "LOCKSTEP_TOKEN": "0123456789abcdef",
		}
		for k, v := range more {
			all[k] = v
		}
		return func(name string) string { return all[name] }
	}
	tests := []struct {
		name, scontrol string
		env            map[string]string
		want           string
	}{
		{"launch node", "", map[string]string{"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.5"}, "127.0.0.5"},
		{"NodeAddr", "echo NodeName=$4 NodeHostName=x NodeAddr=127.0.0.9 Port=1", map[string]string{"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.5"}, "127.0.0.9"},
		{"NodeAddr does not resolve", "echo NodeName=$4 NodeAddr=$4", map[string]string{"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.5"}, "127.0.0.5"},
		{"no address", "exit 1", nil, node},
		{"mpirun in a job", "echo NodeName=$4 NodeAddr=127.0.0.9", openMPI, "127.0.0.9"},
		{"mpirun with MASTER_ADDR of the job", "echo NodeName=$4 NodeAddr=127.0.0.9", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": node}, "127.0.0.9"},
		{"MASTER_ADDR", "", map[string]string{"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.5", "MASTER_ADDR": "other.invalid"}, "other.invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.scontrol != "" {
				if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte("#!/bin/sh\n"+tt.scontrol+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			e, err := FromEnv(env(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if got := e.ResolveMaster(t.Context()).MasterAddr; got != tt.want {
				t.Errorf("got address %q, want %q", got, tt.want)
			}
		})
	}
}
