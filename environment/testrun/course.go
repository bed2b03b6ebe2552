package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// checkCourse uses the course's commands as teachers and students do, with the executed solutions in out: check,
// release, submit, grade and report. A solution must get full points for each task that is not graded by hand,
// the release none. env is the environment in which the notebooks ran.
func checkCourse(ctx context.Context, r *runner, env, notebooks []string, out string) error {
	release, table := filepath.Join(out, "release"), filepath.Join(out, "grades.csv")
	if err := r.runCommand(ctx, env, lockstepCommand, "course", "release", "notebooks/course", release); err != nil {
		return err
	}
	grade := []string{"course", "grade", "--release", release, "--csv", table}
	for _, path := range notebooks {
		name := filepath.Base(path)
		for student, notebook := range map[string]string{"solution": filepath.Join(out, name), "nobody": filepath.Join(release, name)} {
			submission := filepath.Join(out, name+"-"+student+".zip")
			if err := r.runCommand(ctx, env, lockstepCommand, "course", "submit", notebook, "--name", student, "--out", submission); err != nil {
				return err
			}
			grade = append(grade, submission)
		}
		if err := r.runCommand(ctx, env, lockstepCommand, "course", "check", "--read", filepath.Join(out, name)); err != nil {
			return err
		}
	}
	if err := r.runCommand(ctx, env, lockstepCommand, grade...); err != nil {
		return err
	}
	if err := checkGrades(r, table); err != nil {
		return err
	}
	if err := r.runCommand(ctx, env, lockstepCommand, "course", "report", filepath.Join(out, "03-server.ipynb"), "--out", filepath.Join(out, "03-server.pdf")); err != nil {
		return err
	}
	return checkReleased(ctx, env, filepath.Join(release, "03-server.ipynb"))
}

// checkGrades checks that solutions got points, or points by hand, for each task, and releases none.
func checkGrades(r *runner, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	tasks := 0
	var wrong []error
	for _, row := range rows[1:] {
		student, points, byHand := row[0], row[2], row[3]
		if student == "solution" {
			tasks++
		}
		if hasPoints := points != "0" || byHand != "0"; hasPoints != (student == "solution") {
			wrong = append(wrong, fmt.Errorf("grades of %s: %s", student, strings.Join(row[1:], ", ")))
		}
	}
	r.printLine(fmt.Sprintf("%d tasks graded", tasks))
	if tasks == 0 {
		wrong = append(wrong, errors.New("no grades"))
	}
	return errors.Join(wrong...)
}

// checkReleased executes a released notebook, in which each task must be open, with a hint.
func checkReleased(ctx context.Context, env []string, notebook string) error {
	cmd := exec.CommandContext(ctx, lockstepCommand, "course", "check", notebook)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.Output()
	if err == nil {
		return fmt.Errorf("check %s: the released notebook passes", notebook)
	}
	open, hints := strings.Count(string(text), "open "), strings.Count(string(text), "course.Hint(")
	texts := strings.Count(string(text), "text: write your text")
	if open == 0 || strings.Contains(string(text), "done ") || hints+texts != open {
		return fmt.Errorf("check %s: got %d open tasks, %d with a hint and %d texts:\n%s", notebook, open, hints, texts, text)
	}
	return nil
}
