// Package identity determines what identifies a run: its numbers of workers and nodes, rank,
// seed, series, batch and model.
//
// Each source states properties as claims (record.Claim): claims.go turns the content of a
// file, a configuration and a job's accounting into claims, and pathnames.go the names in the
// path of a file. identity.go chooses the claim that counts by the precedence of its source
// (see runs.Source), reports the source and contradictions, and stores the values in the run.
// series.go derives the series and the study from the path if no claim states them.
package identity
