package slurm

import (
	"maps"
	"slices"
	"testing"
	"time"

	"lockstep/pkg/launch/site"
)

// TestParseLimits reads rows that sacctmgr 22.05 has printed.
func TestParseLimits(t *testing.T) {
	rows, err := parseOutputRows("sacctmgr", "ml|ml||ml|ml|node=3||5|cpu=30|\nml|night||||||||\nml|gpu|devel||normal|||||\nml|root|||normal,high||1-00:00:00|||\n", userColumns)
	if err != nil {
		t.Fatal(err)
	}
	accounts, qos := parseAccounts(rows)
	owner := "your account ml"
	want := []site.Limit{
		{Owner: owner, Scope: site.PerJob, Resource: site.ResourceNode, Count: 3},
		{Owner: owner, Scope: site.PerUser, Resource: site.ResourceJob, Count: 5},
		{Owner: owner, Scope: site.PerUser, Resource: site.ResourceCPU, Count: 30, Group: true},
	}
	if len(accounts) != 4 || !accounts[0].Default || accounts[1].Default || !slices.Equal(accounts[0].Limits, want) {
		t.Errorf("got accounts %+v, want 4, the first of them with %+v", accounts, want)
	}
	if got := accounts[3].Limits; len(got) != 1 || got[0].Time != 24*time.Hour {
		t.Errorf("got limits %+v of root, want a day", got)
	}
	if !slices.Equal(qos, []string{"ml", "", "", "normal"}) {
		t.Errorf("got QOS %q", qos)
	}
	rows, err = parseOutputRows("sacctmgr", "ml||cpu=8,gres/gpu=2,mem=1000M||00:30:00|3||gres/gpu=6||DenyOnLimit,OverPartQOS\n", qosColumns)
	if err != nil {
		t.Fatal(err)
	}
	want = []site.Limit{
		{Owner: owner, Scope: site.PerUser, Resource: site.ResourceCPU, Count: 8},
		{Owner: owner, Scope: site.PerUser, Resource: site.ResourceGPU, Count: 2},
		{Owner: owner, Resource: site.ResourceTime, Time: 30 * time.Minute},
		{Owner: owner, Scope: site.PerUser, Resource: site.ResourceJob, Count: 3},
		{Owner: owner, Scope: site.ForAll, Resource: site.ResourceGPU, Count: 6, Group: true},
	}
	if got := qosLimits(describeQOSOwner("ml", "ml"), "ml", rows); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := describeQOSOwner("other", "ml"); got != "QOS ml of your account other" {
		t.Errorf("got owner %q", got)
	}
	groups := map[string][]string{"ml": {"ml", "dept", "gres/gpu=1", ""}, "dept": {"dept", "root", "cpu=5", "7"}, "root": {"root", "", "node=9", ""}}
	parent := "account dept, to which your account ml belongs,"
	want = []site.Limit{
		{Owner: owner, Scope: site.ForAll, Resource: site.ResourceGPU, Count: 1, Group: true},
		{Owner: parent, Scope: site.ForAll, Resource: site.ResourceCPU, Count: 5, Group: true},
		{Owner: parent, Scope: site.ForAll, Resource: site.ResourceJob, Count: 7, Group: true},
		{Owner: "account root, to which your account ml belongs,", Scope: site.ForAll, Resource: site.ResourceNode, Count: 9, Group: true},
	}
	if got := parentLimits("ml", groups); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	text := "PartitionName=batch AllowQos=ALL Default=YES QoS=N/A Nodes=n1\nPartitionName=devel Default=NO QoS=short Nodes=n1\n"
	if got := parsePartitionQOS(text); !maps.Equal(got, map[string]string{"devel": "short"}) {
		t.Errorf("got %v, want only the QOS of devel", got)
	}
	if _, err := parseOutputRows("sacctmgr", "ml|8\n", qosColumns); err == nil {
		t.Error("got no error for a row with two columns")
	}
}

// TestWithoutAccounting: Slurm without accounting has no accounts and no limits.
func TestWithoutAccounting(t *testing.T) {
	cluster.StartForTest(t)
	var c site.Cluster
	if err := (Client{}).AddAccounts(t.Context(), &c); err != nil || c.NeedsAccount || c.Accounts != nil {
		t.Errorf("got %+v, %v, want no accounts", c, err)
	}
}
