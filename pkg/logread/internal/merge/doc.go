// Package merge combines the parts that the formats' readers return into runs, since several
// files may describe one run: a log and its TensorBoard events, the files of the ranks, a
// configuration, a job script, the accounting of a job. merge.go lists the rules. Package
// identity then determines what identifies each run.
package merge
