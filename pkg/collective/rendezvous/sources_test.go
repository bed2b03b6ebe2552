package rendezvous

import (
	"cmp"
	"strings"
	"testing"
)

// getenvOf returns a getenv for variables in the form "NAME=value NAME=value".
func getenvOf(variables string) func(string) string {
	values := map[string]string{}
	for _, kv := range strings.Fields(variables) {
		name, v, _ := strings.Cut(kv, "=")
		values[name] = v
	}
	return func(name string) string { return values[name] }
}

// The variables of launchers, for rank 3 of 4, as printed by "env" in a worker.
const (
	// torchrun --nproc_per_node=4 of PyTorch 2 (https://pytorch.org/docs/stable/elastic/run.html,
	// "Environment Variables").
	torchrunVariables = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 GROUP_RANK=0 ROLE_RANK=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 TORCHELASTIC_RUN_ID=7d2c"
	// mpirun -np 4 of Open MPI 4.1.4.
	openMPIVariables = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_NODE_RANK=3 " +
		"PMIX_RANK=3 PMIX_NAMESPACE=1958477825 OMPI_MCA_ess_base_jobid=1958477825"
	// mpirun -np 4 of MPICH 4.0.2 (hydra).
	mpichVariables = "PMI_RANK=3 PMI_SIZE=4 PMI_FD=8 MPI_LOCALRANKID=3 MPI_LOCALNRANKS=4 HYDI_CONTROL_FD=7"
	// srun -N 2 --ntasks-per-node=2 in a job of 2 nodes (https://slurm.schedmd.com/srun.html,
	// "OUTPUT ENVIRONMENT VARIABLES").
	slurmVariables = "SLURM_JOB_ID=812 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 " +
		"SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=node[03-04] SLURM_JOB_NODELIST=node[03-04] SLURM_LAUNCH_NODE_IPADDR=192.0.2.3"
	// What sbatch -N 2 --ntasks-per-node=2 sets in the batch script (https://slurm.schedmd.com/sbatch.html):
	// the script is one process, whatever the number of tasks.
	batchVariables = "SLURM_JOB_ID=812 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_TASKS_PER_NODE=2(x2) SLURM_JOB_NODELIST=node[03-04]"
	// Two hosts with a chief and three workers (https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras).
	tfConfig = `TF_CONFIG={"cluster":{"chief":["a:2222"],"worker":["a:2223","b:2222","b:2223"]},"task":{"type":"worker","index":2}}`
)

// TestSources reads the rank, the address of rank 0 and the job from the variables of each
// launcher, alone and within another.
func TestSources(t *testing.T) {
	const token = " LOCKSTEP_TOKEN=secret"
	for _, tt := range []struct {
		name, variables, master string
		want                    Env
	}{
		{"torchrun", torchrunVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 29400, Source: SourceExplicit, job: "RANK and WORLD_SIZE 7d2c"}},
		{
			"horovodrun", "HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2", "a",
			Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "a", MasterPort: 29500, Source: SourceHorovod},
		},
		{"Open MPI", openMPIVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", Source: SourceOpenMPI, job: "Open MPI 1958477825"}},
		{"MPICH", mpichVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 29500, Source: SourcePMI}},
		{"Slurm", slurmVariables, "", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "node03", Source: SourceSlurm, job: "Slurm 812.0"}},
		{
			"Slurm on one node", "SLURM_JOB_ID=812 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=node03", "",
			Env{Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", Source: SourceSlurm, job: "Slurm 812.1"},
		},
		{"TF_CONFIG", tfConfig, "", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "a", MasterPort: 2222, Source: SourceTFConfig}},
		{
			"TF_CONFIG without a chief", `TF_CONFIG={"cluster":{"worker":["a:2223","b:2222"]},"task":{"type":"worker","index":"1"}}`, "",
			Env{Rank: 1, World: 2, LocalRank: 0, LocalWorld: 1, MasterAddr: "a", MasterPort: 2223, Source: SourceTFConfig},
		},
		{"TF_CONFIG of one", `TF_CONFIG={"task":{}}`, "", Env{World: 1, LocalWorld: 1, Source: SourceTFConfig}},
		{"nothing", "", "", Env{World: 1, LocalWorld: 1}},
		// Sources within others. Rank 9 of 10 is the one that does not count.
		{"our launcher within mpirun", "OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=10 " + torchrunVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 29400, Source: SourceExplicit, job: "RANK and WORLD_SIZE 7d2c"}},
		{"mpirun within a step of Slurm", strings.ReplaceAll(slurmVariables, "=4", "=10") + " " + openMPIVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", Source: SourceOpenMPI, job: "Open MPI 1958477825"}},
		{"hydra within a step of Slurm", "SLURM_JOB_ID=812 SLURM_STEP_ID=1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 " + mpichVariables, "", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 29500, Source: SourcePMI}},
		// srun --mpi=pmi2 adds PMI_RANK and PMI_SIZE to its own variables.
		{"srun --mpi=pmi2", slurmVariables + " PMI_RANK=3 PMI_SIZE=4 PMI_FD=11", "", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "node03", Source: SourceSlurm, job: "Slurm 812.0"}},
		// An mpirun in a job on several nodes states no address.
		{
			"Open MPI on the nodes of a job", strings.Replace(openMPIVariables, "LOCAL_SIZE=4", "LOCAL_SIZE=1", 1) + " OMPI_COMM_WORLD_LOCAL_RANK=0 SLURM_JOB_ID=812 SLURM_JOB_NODELIST=node[03-06] SLURM_STEP_ID=0 SLURM_PROCID=3", "",
			Env{Rank: 3, World: 4, LocalRank: 0, LocalWorld: 1, MasterAddr: "node03", Source: SourceOpenMPI, job: "Open MPI 1958477825"},
		},
		{"Open MPI on the nodes of a job, --master", openMPIVariables + " SLURM_JOB_NODELIST=node[03-06]", "front", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "front", Source: SourceOpenMPI, job: "Open MPI 1958477825"}},
		{"Slurm with TF_CONFIG", slurmVariables + " " + tfConfig, "", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "node03", Source: SourceSlurm, job: "Slurm 812.0"}},
		{"batch script", batchVariables, "", Env{World: 1, LocalWorld: 1}},
		// --master
		{"Slurm --master host", slurmVariables, "front", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "front", Source: SourceSlurm, job: "Slurm 812.0"}},
		{"Slurm --master host:port", slurmVariables, "front:4000", Env{Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "front", MasterPort: 4000, Source: SourceSlurm, job: "Slurm 812.0"}},
		{"MPICH --master", mpichVariables, "::1", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "::1", MasterPort: 29500, Source: SourcePMI}},
		{"torchrun --master", torchrunVariables, "[::1]:4000", Env{Rank: 3, World: 4, LocalRank: 3, LocalWorld: 4, MasterAddr: "::1", MasterPort: 4000, Source: SourceExplicit, job: "RANK and WORLD_SIZE 7d2c"}},
		{"RANK, WORLD_SIZE and --master", "RANK=0 WORLD_SIZE=2", "a", Env{World: 2, LocalWorld: 2, MasterAddr: "a", MasterPort: 29500, Source: SourceExplicit}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			getenv, err := WithMaster(getenvOf(tt.variables+token), tt.master)
			if err != nil {
				t.Fatal(err)
			}
			got, err := FromEnv(getenv)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.World > 1 {
				tt.want.Token, tt.want.TokenFrom = "secret", "LOCKSTEP_TOKEN"
				tt.want.MasterPort = cmp.Or(tt.want.MasterPort, deriveJobPort(tt.want.job))
			}
			got.slurmNode, got.launchAddr = "", "" // TestResolveMaster uses them
			if got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestSourceErrors checks the errors of sources that contradict themselves or state too little.
func TestSourceErrors(t *testing.T) {
	replace := func(variables string, pairs ...string) string {
		return strings.NewReplacer(pairs...).Replace(variables)
	}
	for _, tt := range []struct{ name, variables, want string }{
		{"Open MPI rank", replace(openMPIVariables, "WORLD_RANK=3", "WORLD_RANK=4"), `OMPI_COMM_WORLD_RANK is "4": expected a whole number from 0 to 3`},
		{"Open MPI local rank", replace(openMPIVariables, "LOCAL_RANK=3", "LOCAL_RANK=5"), `OMPI_COMM_WORLD_LOCAL_RANK is "5": expected a whole number from 0 to 3`},
		{"Open MPI without a size", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set, but other variables of Open MPI are: start all ranks with the same launcher, or set RANK and WORLD_SIZE"},
		{"Open MPI on several machines", replace(openMPIVariables, "LOCAL_SIZE=4", "LOCAL_SIZE=2", "LOCAL_RANK=3", "LOCAL_RANK=1"), "Open MPI does not state the host of rank 0, and the 4 ranks are on several machines: add --master HOST[:PORT], or set MASTER_ADDR"},
		{"PMI", replace(mpichVariables, "PMI_SIZE=4", "PMI_SIZE=none"), `PMI_SIZE is "none": expected a whole number from 1`},
		{"Slurm tasks", replace(slurmVariables, "2(x2)", "2,1"), `Slurm step: SLURM_STEP_TASKS_PER_NODE is "2,1", which is 3 tasks, but SLURM_STEP_NUM_TASKS is 4`},
		{"Slurm list", replace(slurmVariables, "2(x2)", "2(x"), `SLURM_STEP_TASKS_PER_NODE is "2(x": expected numbers of tasks such as 2(x3),1`},
		{"Slurm node", replace(slurmVariables, "NODEID=1", "NODEID=2"), `SLURM_NODEID is "2": expected a whole number from 0 to 1`},
		{"Slurm local rank", replace(slurmVariables, "LOCALID=1", "LOCALID=2"), `SLURM_LOCALID is "2": expected a whole number from 0 to 1`},
		{"TF_CONFIG noise", "TF_CONFIG=worker", "TF_CONFIG: invalid character"},
		{"TF_CONFIG index", replace(tfConfig, `index":2`, `index":3`), `TF_CONFIG: task.index is "3", but the cluster has 3 tasks of type worker`},
		{"TF_CONFIG server", replace(tfConfig, `type":"worker"`, `type":"ps"`), `task.type is "ps": only tasks of type chief and worker train`},
		{"TF_CONFIG address", replace(tfConfig, "b:2223", "b"), `address "b" of the cluster`},
		{"TF_CONFIG chiefs", replace(tfConfig, `["a:2222"]`, `["a:2222","b:1"]`), "the cluster has 2 chiefs, want at most 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := FromEnv(getenvOf(tt.variables + " LOCKSTEP_TOKEN=secret"))
			wantError(t, err, "read rank from environment: ", tt.want)
		})
	}
	for _, address := range []string{"a:b", "a:0", ":29500", "a:1:2", "a:"} {
		if _, err := WithMaster(getenvOf(""), address); address != "a:" {
			wantError(t, err, "invalid address of rank 0", "expected HOST or HOST:PORT")
		}
	}
}

// TestFirstHost checks the notation of Slurm's lists of hosts (https://slurm.schedmd.com/scontrol.html,
// "show hostnames").
func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "gpu1": "gpu1", "gpu1,gpu2": "gpu1", "node[03-05,9],gpu1": "node03", "n[7,9]": "n7",
		"rack[1-2]node[08-09]": "rack1node08", "c[1-2]-ib,x": "c1-ib", "a[1": "a1",
	} {
		if got := FirstHost(list); got != want {
			t.Errorf("first host of %q is %q, want %q", list, got, want)
		}
	}
}

// TestPortOfJob checks that the ports of jobs are in the range that Linux does not use for
// outgoing connections.
func TestPortOfJob(t *testing.T) {
	seen := map[int]bool{}
	for _, job := range []string{"Slurm 1.0", "Slurm 1.1", "Slurm 2.0", "Open MPI 1958477825"} {
		p := deriveJobPort(job)
		if p < 20000 || p >= 32768 || seen[p] {
			t.Errorf("port of %s is %d, want another one from 20000 to 32767", job, p)
		}
		seen[p] = true
	}
}
