package site

import (
	"slices"
	"testing"
	"time"
)

// classCluster returns a cluster on which the user is in two classes.
func classCluster() *Cluster {
	owner, qos := "your account ml", "QOS night of your account thesis"
	return &Cluster{NeedsAccount: true, Accounts: []Account{
		{Name: "ml", Default: true, Queued: 1, Limits: []Limit{
			{Owner: owner, Scope: ForAll, Resource: ResourceGPU, Count: 6},
			{Owner: owner, Scope: PerUser, Resource: ResourceGPU, Count: 2},
			{Owner: owner, Scope: PerUser, Resource: ResourceCPU, Count: 8},
			{Owner: owner, Scope: PerUser, Resource: ResourceJob, Count: 3},
			{Owner: owner, Resource: ResourceTime, Time: time.Hour},
			{Owner: owner, Resource: ResourceNode, Count: 2},
		}},
		{Name: "thesis", Limits: []Limit{{Owner: qos, Scope: ForAll, Resource: ResourceGPU, Count: 0}}},
	}}
}

// TestLimits has one case for each kind of limit, with its whole message.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		cluster *Cluster
		change  func(*Job)
		want    []string
	}{
		{classCluster(), func(j *Job) { j.TasksPerNode, j.GPUsPerNode, j.Time = 2, 2, time.Hour }, nil},
		{classCluster(), func(j *Job) { j.Nodes, j.TasksPerNode, j.GPUsPerNode = 2, 2, 2 }, []string{
			"your account ml allows you 2 GPUs at a time, but the job asks for 4: use fewer workers, or ask the manager of the account for more",
		}},
		{classCluster(), func(j *Job) { j.TasksPerNode, j.CPUsPerTask = 3, 3 }, []string{
			"your account ml allows you 8 CPUs at a time, but the job asks for 9: use fewer workers, or fewer CPUs per task, or ask the manager of the account for more",
		}},
		{classCluster(), func(j *Job) { j.Nodes = 3 }, []string{
			"your account ml allows 2 nodes per job, but the job asks for 3: use fewer nodes, with more workers on each, or ask the manager of the account for more",
		}},
		{classCluster(), func(j *Job) { j.Time = 2 * time.Hour }, []string{
			"your account ml allows time limits up to 1h0m0s, but the job asks for 2h0m0s: lower the time limit, or ask the manager of the account for more",
		}},
		{classCluster(), func(j *Job) { j.Account, j.GPUsPerNode = "thesis", 1 }, []string{
			"QOS night of your account thesis allows all its users together 0 GPUs at a time, but the job asks for 1: use fewer workers, or ask the manager of the account for more",
		}},
		{&Cluster{
			NeedsAccount: true, Accounts: classCluster().Accounts,
			Partitions: []Partition{{Name: "day", Default: true}, {Name: "short", Limits: []Limit{{Owner: "QOS short of partition short", Scope: PerUser, Resource: ResourceCPU, Count: 3}}}},
		}, func(j *Job) { j.Partition, j.TasksPerNode = "short", 4 }, []string{
			"QOS short of partition short allows you 3 CPUs at a time, but the job asks for 4: use fewer workers, or fewer CPUs per task, or another partition",
		}},
		{classCluster(), func(j *Job) { j.Account = "mll" }, []string{`you may not use an account "mll" (did you mean ml?): use one of ml, thesis (Account, --account)`}},
		{&Cluster{NeedsAccount: true, Accounts: []Account{{Name: "a"}}}, func(*Job) {}, []string{"the job names no account, and you have no default account: use one of a (Account, --account)"}},
		{&Cluster{NeedsAccount: true}, func(*Job) {}, []string{"you have no account on this cluster, so that Slurm would refuse the job: ask the manager of the cluster or of your class for an account"}},
		{&Cluster{}, func(j *Job) { j.Account, j.Nodes = "any", 100 }, nil}, // without accounting
	} {
		p, err := Load("generic")
		if err != nil {
			t.Fatal(err)
		}
		j := Job{Name: "a", Command: []string{"true"}, Nodes: 1, TasksPerNode: 1}
		c.change(&j)
		var got []string
		for _, problem := range p.Check(j, c.cluster) {
			got = append(got, problem.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v:\ngot  %q\nwant %q", j, got, c.want)
		}
	}
}

// TestPrecedence: Slurm 22.05 runs a job of 30 minutes if its QOS allows 2 hours and its user 10
// minutes, and one with 4 CPUs if its QOS allows all jobs together 6 and the user 2.
func TestPrecedence(t *testing.T) {
	qos := []Limit{
		{Owner: "QOS", Resource: ResourceTime, Time: 2 * time.Hour},
		{Owner: "QOS", Scope: ForAll, Resource: ResourceCPU, Count: 6, Group: true},
		{Owner: "QOS", Scope: PerUser, Resource: ResourceGPU, Count: 2},
	}
	others := []Limit{
		{Owner: "account", Scope: PerUser, Resource: ResourceGPU, Count: 1, Group: true},
		{Owner: "account", Scope: PerJob, Resource: ResourceGPU, Count: 1},
		{Owner: "account", Scope: PerJob, Resource: ResourceCPU, Count: 5},
	}
	same := []Limit{
		{Owner: "account", Resource: ResourceTime, Time: 10 * time.Minute},
		{Owner: "account", Scope: PerUser, Resource: ResourceCPU, Count: 2, Group: true},
		{Owner: "parent", Scope: ForAll, Resource: ResourceCPU, Count: 3, Group: true},
		{Owner: "account", Scope: PerUser, Resource: ResourceGPU, Count: 1},
	}
	if got, want := WithPrecedence(qos, slices.Concat(same, others)), slices.Concat(qos, others); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, overrides := range []bool{false, true} {
		c := &Cluster{
			Accounts:   []Account{{Default: true, Limits: []Limit{{Owner: "account", Resource: ResourceTime, Time: time.Hour}}, OverridesPartitions: overrides}},
			Partitions: []Partition{{Name: "long", Limits: []Limit{{Owner: "partition", Resource: ResourceTime, Time: 3 * time.Hour}}}},
		}
		found := checkAccount(Job{Partition: "long", Time: 2 * time.Hour}, c)
		if (len(found) == 1) != overrides {
			t.Errorf("OverPartQOS %t: got problems %v", overrides, found)
		}
	}
}

func TestCheckCount(t *testing.T) {
	c := classCluster()
	for _, tt := range []struct {
		cluster *Cluster
		jobs    int
		account string
		want    string
	}{
		{c, 2, "", ""},
		{c, 3, "", "your account ml allows you 3 jobs in the queue, of which 1 are used, but the sweep would submit 3: " +
			"launch fewer runs now, and repeat the sweep when they have ended: it submits what is missing"},
		{c, 100, "thesis", ""},
		{c, 100, "unknown", ""}, // Check says so
		{nil, 100, "", ""},
	} {
		got := ""
		if all := tt.cluster.CheckCount(tt.jobs, tt.account); len(all) > 0 {
			got = all[0].String()
		}
		if got != tt.want {
			t.Errorf("%d jobs in %q:\ngot  %q\nwant %q", tt.jobs, tt.account, got, tt.want)
		}
	}
}
