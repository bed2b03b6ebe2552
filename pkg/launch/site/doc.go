// Package site describes clusters and writes job scripts for them. A Profile contains what one
// site's Slurm expects of a job: partitions, GPUs and CPUs per node, the flag for GPUs, modules,
// the command that starts the tasks. The package starts no process and uses no network.
//
//	p, err := site.Load("jsc-booster")     // or a file, "my-site.yaml"
//	j, err := p.Place(site.Job{Name: "unet-n8", Command: command}, 8, 1, 1) // 8 workers, each in its own task with a GPU
//	problems := p.Check(j, cluster)        // what would be refused or wait for ever
//	script, err := p.Script(j)             // for sbatch
//
// A value that nobody has looked up is the literal Unknown, "ask-your-site". Script and Check
// refuse a job that depends on such a value and name its key.
package site
