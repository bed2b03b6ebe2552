package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"lockstep/pkg/launch/site"
)

// The columns that sacctmgr is asked for. A user's association inherits the Max limits of its
// account, but not the Grp limits.
const (
	userColumns  = "DefaultAccount,Account,Partition,DefaultQOS,QOS,MaxTRES,MaxWall,MaxSubmitJobs,GrpTRES,GrpSubmitJobs"
	groupColumns = "Account,ParentName,GrpTRES,GrpSubmitJobs"
	qosColumns   = "Name,MaxTRES,MaxTRESPerUser,MaxTRESPerAccount,MaxWall,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpTRES,GrpSubmitJobs,Flags"
)

// AddAccounts adds to cluster the accounts that the user may use. The limits of an account are its
// own and those of its parent accounts and its default QOS. Partitions get the limits of their QOS.
// AddAccounts adds nothing if Slurm has no accounting or does not enforce it. It reads only limits
// on the resources in package site; Slurm applies all others at submission.
func (c Client) AddAccounts(ctx context.Context, cluster *site.Cluster) error {
	text, err := c.runCommand(ctx, "scontrol", "show", "config")
	if err != nil {
		return err
	}
	enforced := strings.Split(parseConfigValue(text, "AccountingStorageEnforce"), ",")
	if !slices.Contains(enforced, "associations") { // limits and qos imply it
		return nil
	}
	me, err := user.Current()
	if err != nil {
		return fmt.Errorf("find out the user's name: %w", err)
	}
	accounts, qos, err := c.readAccounts(ctx, me.Username)
	if err != nil {
		if errors.Is(err, ErrNoAnswer) {
			err = fmt.Errorf("slurmdbd does not answer: %w", err)
		}
		return err
	}
	if slices.Contains(enforced, "limits") {
		if err := c.addResourceLimits(ctx, cluster, accounts, qos); err != nil {
			return err
		}
	} else {
		for i := range accounts {
			accounts[i].Limits = nil
		}
	}
	cluster.NeedsAccount, cluster.Accounts = true, accounts
	return nil
}

func parseConfigValue(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// runSacctmgr runs sacctmgr show and returns its rows, each of which has the given columns.
func (c Client) runSacctmgr(ctx context.Context, columns string, args ...string) ([][]string, error) {
	text, err := c.runCommand(ctx, "sacctmgr", append(append([]string{"--noheader", "--parsable2", "show"}, args...), "format="+columns)...)
	if err != nil {
		return nil, err
	}
	return parseOutputRows("sacctmgr", text, columns)
}

// parseOutputRows splits text, the output of a command, into lines and columns. It returns an error if a
// line does not have the given columns.
func parseOutputRows(command, text, columns string) ([][]string, error) {
	var rows [][]string
	for line := range strings.Lines(text) {
		row := strings.Split(strings.TrimRight(line, "\n"), fieldSeparator)
		if len(row) != strings.Count(columns, ",")+1 {
			return nil, fmt.Errorf("read output of %s: got %q, want the columns %s", command, line, columns)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// readAccounts returns the accounts that the named user may use, with the limits of the user's
// associations. qos contains the default QOS of each account, or "" if there is none.
func (c Client) readAccounts(ctx context.Context, name string) (accounts []site.Account, qos []string, err error) {
	rows, err := c.runSacctmgr(ctx, userColumns, "user", "where", "name="+name, "withassoc")
	if err != nil {
		return nil, nil, err
	}
	accounts, qos = parseAccounts(rows)
	return accounts, qos, nil
}

// parseAccounts implements readAccounts. Each row has the columns userColumns.
func parseAccounts(rows [][]string) (accounts []site.Account, qos []string) {
	for _, f := range rows {
		if f[1] == "" || slices.ContainsFunc(accounts, func(a site.Account) bool { return a.Name == f[1] }) {
			continue
		}
		a := site.Account{Name: f[1], Default: f[0] == f[1]}
		if f[2] != "" { // other partitions may have other limits
			accounts, qos = append(accounts, a), append(qos, "")
			continue
		}
		owner := "your account " + a.Name
		a.Limits = slices.Concat(
			parseTRESLimits(owner, site.PerJob, f[5]), parseJobTimeLimit(owner, f[6]), parseJobLimit(owner, site.PerUser, f[7]),
			parseGroupLimits(owner, site.PerUser, f[8], f[9]),
		)
		accounts, qos = append(accounts, a), append(qos, defaultQOS(f[3], strings.Split(f[4], ",")))
	}
	return accounts, qos
}

// defaultQOS returns the QOS of a job that names none: given if it is not empty, else the only
// element of all, else "normal" if all contains it, else "".
func defaultQOS(given string, all []string) string {
	switch {
	case given != "":
		return given
	case len(all) == 1:
		return all[0]
	case slices.Contains(all, "normal"):
		return "normal"
	}
	return ""
}

// addResourceLimits adds to each account the limits of its parents and of its default QOS, and the number
// of the user's jobs. To the partitions of cluster it adds the limits of their QOS.
func (c Client) addResourceLimits(ctx context.Context, cluster *site.Cluster, accounts []site.Account, qos []string) error {
	text, err := c.runCommand(ctx, "scontrol", "--oneliner", "show", "partition")
	if err != nil {
		return err
	}
	ofPartition := parsePartitionQOS(text)
	ofQOS := make([][]site.Limit, len(accounts))
	names := slices.AppendSeq(slices.Clone(qos), maps.Values(ofPartition))
	if names = slices.DeleteFunc(names, func(q string) bool { return q == "" }); len(names) > 0 {
		rows, err := c.runSacctmgr(ctx, qosColumns, "qos", "where", "name="+strings.Join(names, ","))
		if err != nil {
			return err
		}
		for i := range accounts {
			ofQOS[i] = qosLimits(describeQOSOwner(accounts[i].Name, qos[i]), qos[i], rows)
			accounts[i].OverridesPartitions = slices.ContainsFunc(rows, func(f []string) bool { return f[0] == qos[i] && strings.Contains(f[9], "OverPartQOS") })
		}
		for i, p := range cluster.Partitions {
			q := ofPartition[p.Name]
			cluster.Partitions[i].Limits = qosLimits("QOS "+q+" of partition "+p.Name, q, rows)
		}
	}
	groups, err := c.readAccountRows(ctx, accounts)
	if err != nil {
		return err
	}
	if text, err = c.runCommand(ctx, "squeue", "--me", "--array", "--noheader", "--format=%a"); err != nil {
		return err
	}
	for i := range accounts {
		a := &accounts[i]
		a.Limits = site.WithPrecedence(ofQOS[i], append(a.Limits, parentLimits(a.Name, groups)...))
		for name := range strings.FieldsSeq(text) {
			if name == a.Name {
				a.Queued++
			}
		}
	}
	return nil
}

// parsePartitionQOS returns the QOS of each partition that has one, from scontrol --oneliner show
// partition.
func parsePartitionQOS(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		var name string
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			switch {
			case key == "PartitionName":
				name = value
			case key == "QoS" && value != "N/A":
				all[name] = value
			}
		}
	}
	return all
}

// readAccountRows returns rows with groupColumns of accounts and of all their parents, by name.
func (c Client) readAccountRows(ctx context.Context, accounts []site.Account) (map[string][]string, error) {
	var missing []string
	for _, a := range accounts {
		missing = append(missing, a.Name)
	}
	groups := map[string][]string{}
	for len(missing) > 0 {
		rows, err := c.runSacctmgr(ctx, groupColumns, "assoc", "where", "account="+strings.Join(missing, ","), "user=")
		if err != nil {
			return nil, err
		}
		for _, f := range rows {
			groups[f[0]] = f
		}
		missing = nil
		for _, f := range rows {
			if f[1] != "" && groups[f[1]] == nil && !slices.Contains(missing, f[1]) {
				missing = append(missing, f[1])
			}
		}
	}
	return groups, nil
}

// parentLimits returns the limits on all users of an account together, and those of its parents.
// groups is the result of readAccountRows.
func parentLimits(account string, groups map[string][]string) []site.Limit {
	var all []site.Limit
	owner := "your account " + account
	for f := groups[account]; f != nil; f = groups[f[1]] {
		all = append(all, parseGroupLimits(owner, site.ForAll, f[2], f[3])...)
		owner = fmt.Sprintf("account %s, to which your account %s belongs,", f[1], account)
	}
	return all
}

// describeQOSOwner returns what messages call the QOS of an account. If the QOS has the account's name, as
// class-limits creates it, messages name only the account.
func describeQOSOwner(account, qos string) string {
	if qos == account {
		return "your account " + account
	}
	return "QOS " + qos + " of your account " + account
}

// qosLimits returns the limits of a QOS from rows with qosColumns, or nil if no row describes it.
func qosLimits(owner, qos string, rows [][]string) []site.Limit {
	i := slices.IndexFunc(rows, func(f []string) bool { return f[0] == qos })
	if i < 0 {
		return nil
	}
	f := rows[i]
	return slices.Concat(
		parseTRESLimits(owner, site.PerJob, f[1]), parseTRESLimits(owner, site.PerUser, f[2]), parseTRESLimits(owner, site.ForAll, f[3]),
		parseJobTimeLimit(owner, f[4]), parseJobLimit(owner, site.PerUser, f[5]), parseJobLimit(owner, site.ForAll, f[6]),
		parseGroupLimits(owner, site.ForAll, f[7], f[8]),
	)
}

func parseGroupLimits(owner string, scope site.Scope, tres, jobs string) []site.Limit {
	all := append(parseTRESLimits(owner, scope, tres), parseJobLimit(owner, scope, jobs)...)
	for i := range all {
		all[i].Group = true
	}
	return all
}

// parseTRESLimits parses limits such as cpu=8,gres/gpu=2,node=2. Other resources are left out.
func parseTRESLimits(owner string, scope site.Scope, text string) []site.Limit {
	resources := map[string]site.Resource{"cpu": site.ResourceCPU, "gres/gpu": site.ResourceGPU, "node": site.ResourceNode}
	var all []site.Limit
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(field, "=")
		if n, err := strconv.Atoi(value); err == nil && resources[name] != "" {
			all = append(all, site.Limit{Owner: owner, Scope: scope, Resource: resources[name], Count: n})
		}
	}
	return all
}

// parseJobLimit parses a limit on the number of jobs. It returns nil if text is empty.
func parseJobLimit(owner string, scope site.Scope, text string) []site.Limit {
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	return []site.Limit{{Owner: owner, Scope: scope, Resource: site.ResourceJob, Count: n}}
}

// parseJobTimeLimit parses the longest time limit that a job may have. It returns nil if text has no limit.
func parseJobTimeLimit(owner, text string) []site.Limit {
	limit := parseTimeLimit(text)
	if limit == 0 {
		return nil
	}
	return []site.Limit{{Owner: owner, Resource: site.ResourceTime, Time: limit}}
}
