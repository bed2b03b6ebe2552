package scaling

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lockstep/pkg/logread"
	"lockstep/pkg/runs"
)

// Follow shows the study again each time the logs that it was read from have
// grown, by the same rule, until the context ends or show fails; it shows it
// once at once. Only what was appended is read, and files are asked for by
// polling, so that it works on a network file system. The end of the context
// is no error.
func (s *Study) Follow(ctx context.Context, show func(*Study) error) error {
	if len(s.paths) == 0 {
		return errors.New("follow study: it was not read from files; read one with scaling.Read")
	}
	return follow(ctx, s.options, s.paths, s.Rule, show)
}

// Follow reads and follows folders that may be empty still: show is called
// when the first run is there, then as Study.Follow does.
func Follow(ctx context.Context, show func(*Study) error, paths ...string) error {
	if len(paths) == 0 {
		return errors.New("follow study: no path given; name a folder of logs such as logs/demo")
	}
	return follow(ctx, logread.Options{}, paths, DefaultRule(), show)
}

func follow(ctx context.Context, options logread.Options, paths []string, rule Rule, show func(*Study) error) error {
	if err := rule.Validate(); err != nil {
		return err
	}
	f, err := options.Follow(ctx, paths...)
	if err != nil {
		return fmt.Errorf("follow study: %w", err)
	}
	for f.Next() {
		logs := f.Logs()
		if len(logs.Runs) == 0 {
			continue
		}
		s, err := fromLogs(logs, rule)
		if err != nil {
			return fmt.Errorf("follow study: %w", err)
		}
		s.paths, s.options = slices.Clone(paths), options
		if err := show(s); err != nil {
			return fmt.Errorf("follow study: %w", err)
		}
	}
	if err := f.Err(); err != nil {
		return fmt.Errorf("follow study: %w", err)
	}
	return nil
}

// fromLogs is the study of what was read. The problems of the runs come back
// in with the runs.
func fromLogs(logs *logread.Logs, rule Rule) (*Study, error) {
	inRun := map[runs.Problem]bool{}
	for _, r := range logs.Runs {
		for _, p := range r.Problems {
			inRun[p] = true
		}
	}
	own := slices.DeleteFunc(slices.Clone(logs.Problems), func(p runs.Problem) bool { return inRun[p] })
	s, err := newStudy(logs.Runs, own, rule)
	if err != nil {
		return nil, err
	}
	s.Reports = logs.Reports
	copies := 0
	for _, r := range logs.Reports {
		if r.CopyOf != "" {
			copies++
		}
	}
	switch {
	case copies == 1:
		s.Notes = append(s.Notes, "1 file is a copy of a run folder that is read too, and does not count")
	case copies > 1:
		s.Notes = append(s.Notes, fmt.Sprintf("%d files are copies of run folders that are read too, and do not count", copies))
	}
	return s, nil
}
