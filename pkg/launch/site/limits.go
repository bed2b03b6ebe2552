package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/nearest"
)

// Account is an account of Slurm that the user may use, with Slurm's limits for the user's jobs in it.
type Account struct {
	Name    string
	Default bool // of jobs that name no account
	Queued  int  // jobs of the user in the account that wait or run
	Limits  []Limit

	// OverridesPartitions reports whether Limits take precedence over the limits of partitions
	// (flag OverPartQOS of the account's QOS).
	OverridesPartitions bool
}

// Limit is what an account or a quality of service (QOS) of Slurm allows.
type Limit struct {
	Owner    string // the account or the QOS, such as "QOS day"
	Scope    Scope
	Resource Resource
	Count    int           // of GPUs, CPUs, nodes or jobs
	Time     time.Duration // of ResourceTime

	// Group reports whether this is one of Slurm's Grp limits, which apply to all jobs of an
	// association or QOS together.
	Group bool
}

// WithPrecedence returns the limits that apply if first takes precedence over then, as the limits
// of a QOS do over those of an account. These are all limits in first, and those in then for which
// first has no limit of the same kind.
func WithPrecedence(first, then []Limit) []Limit {
	all := slices.Clone(first)
	for _, l := range then {
		if !slices.ContainsFunc(first, l.limitsSameResource) {
			all = append(all, l)
		}
	}
	return all
}

// limitsSameResource reports whether l and other are limits of the same kind, of which Slurm
// applies only one.
func (l Limit) limitsSameResource(other Limit) bool {
	return l.Resource == other.Resource && l.Group == other.Group && (l.Group || l.Scope == other.Scope)
}

// Scope states to which jobs a limit applies.
type Scope int

// The scopes of a Limit.
const (
	PerJob  Scope = iota // each job alone
	PerUser              // all jobs of one user together
	ForAll               // the jobs of all users of the account or QOS together
)

// Resource is what a limit counts. It is a singular noun, because messages contain it.
type Resource string

// The resources of a Limit.
const (
	ResourceGPU  Resource = "GPU"
	ResourceCPU  Resource = "CPU"
	ResourceNode Resource = "node"
	ResourceJob  Resource = "job" // that waits or runs
	ResourceTime Resource = "time"
)

// describe returns what l allows, as in "QOS day allows you 2 GPUs at a time".
func (l Limit) describe() string {
	amount := english.FormatCount(l.Count, string(l.Resource))
	switch {
	case l.Resource == ResourceTime:
		return fmt.Sprintf("%s allows time limits up to %s", l.Owner, l.Time)
	case l.Scope == PerJob:
		return fmt.Sprintf("%s allows %s per job", l.Owner, amount)
	case l.Resource == ResourceJob && l.Scope == PerUser:
		return fmt.Sprintf("%s allows you %s in the queue", l.Owner, amount)
	case l.Resource == ResourceJob:
		return fmt.Sprintf("%s allows all its users together %s in the queue", l.Owner, amount)
	case l.Scope == PerUser:
		return fmt.Sprintf("%s allows you %s at a time", l.Owner, amount)
	}
	return fmt.Sprintf("%s allows all its users together %s at a time", l.Owner, amount)
}

// findAccount returns the account with the given name, or nil. For "" it returns the default
// account.
func (c *Cluster) findAccount(name string) *Account {
	i := slices.IndexFunc(c.Accounts, func(a Account) bool { return a.Name == name || name == "" && a.Default })
	if i < 0 {
		return nil
	}
	return &c.Accounts[i]
}

// checkAccount returns a problem for each limit of j's account or partition that j would exceed
// even if no other job ran.
func checkAccount(j Job, c *Cluster) []Problem {
	a := c.findAccount(j.Account)
	if a == nil {
		return missingAccountProblems(j, c)
	}
	var found []Problem
	seen := map[string]bool{} // fields
	limits := a.Limits
	switch p := c.Partition(j.Partition); {
	case p == nil:
	case a.OverridesPartitions:
		limits = WithPrecedence(limits, p.Limits)
	default:
		limits = WithPrecedence(p.Limits, limits)
	}
	for _, l := range sortLimits(limits) {
		field, asked := j.requestedAmount(l.Resource)
		p := Problem{Field: field, What: fmt.Sprintf("%s, but the job asks for %d", l.describe(), asked)}
		switch {
		case seen[field]:
			continue
		case l.Resource == ResourceTime && j.Time > l.Time:
			p.What = fmt.Sprintf("%s, but the job asks for %s", l.describe(), j.Time)
			p.Next = "lower the time limit"
		case l.Resource == ResourceTime || l.Resource == ResourceJob || asked <= l.Count:
			continue
		case l.Resource == ResourceNode:
			p.Next = "use fewer nodes, with more workers on each"
		default:
			p.Next = "use fewer workers"
			if l.Resource == ResourceCPU {
				p.Next += ", or fewer CPUs per task"
			}
		}
		if slices.Contains(a.Limits, l) {
			p.Next += ", or ask the manager of the account for more"
		} else {
			p.Next += ", or another partition"
		}
		seen[field] = true
		found = append(found, p)
	}
	return found
}

// sortLimits returns limits in ascending order, the most restrictive one of a resource first.
func sortLimits(limits []Limit) []Limit {
	return slices.SortedStableFunc(slices.Values(limits), func(a, b Limit) int {
		return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Time, b.Time))
	})
}

// requestedAmount returns how much of the resource r the job requests. field is the field of Job
// that decides this. n is 0 if r is not counted by a field.
func (j Job) requestedAmount(r Resource) (field string, n int) {
	switch r {
	case ResourceGPU:
		return "GPUsPerNode", j.Nodes * j.GPUsPerNode
	case ResourceCPU:
		return "CPUsPerTask", j.Tasks * max(1, j.CPUsPerTask)
	case ResourceNode:
		return "Nodes", j.Nodes
	case ResourceTime:
		return "Time", 0
	}
	return "", 0
}

// missingAccountProblems returns a problem if Slurm requires an account and the user has none, or
// may not use the account of j. Otherwise it returns nil.
func missingAccountProblems(j Job, c *Cluster) []Problem {
	if !c.NeedsAccount {
		return nil
	}
	var names []string
	for _, a := range c.Accounts {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	p := Problem{Field: "Account", What: "you have no account on this cluster, so that Slurm would refuse the job", Next: "ask the manager of the cluster or of your class for an account"}
	if len(names) > 0 {
		p.What, p.Next = "the job names no account, and you have no default account", "use one of "+strings.Join(names, ", ")+" (Account, --account)"
		if j.Account != "" {
			p.What = fmt.Sprintf("you may not use an account %q%s", j.Account, nearest.Hint(j.Account, names))
		}
	}
	return []Problem{p}
}

// CheckCount returns a problem if submitting the given number of jobs would exceed a limit on the
// number of jobs in the queue. An empty account is the default account. A nil Cluster has no limits.
func (c *Cluster) CheckCount(jobs int, account string) []Problem {
	if c == nil {
		return nil
	}
	a := c.findAccount(account)
	if a == nil {
		return nil
	}
	for _, l := range sortLimits(a.Limits) {
		if l.Resource != ResourceJob || a.Queued+jobs <= l.Count {
			continue
		}
		what := fmt.Sprintf("%s, but the sweep would submit %d", l.describe(), jobs)
		if a.Queued > 0 {
			what = fmt.Sprintf("%s, of which %d are used, but the sweep would submit %d", l.describe(), a.Queued, jobs)
		}
		return []Problem{{
			Field: "Account", What: what,
			Next: "launch fewer runs now, and repeat the sweep when they have ended: it submits what is missing",
		}}
	}
	return nil
}
