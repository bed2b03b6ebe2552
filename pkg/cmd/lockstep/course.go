package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep/kernels/kernelspec"
	"lockstep/pkg/cmd/lockstep/internal/cli"
	"lockstep/pkg/course"
	"lockstep/pkg/internal/clean"
	"lockstep/pkg/internal/english"
	"lockstep/pkg/internal/wholefile"
)

func courseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "course",
		Short: "Check, hand in and grade the exercises of the course's notebooks",
		Long: `Works with the notebooks of notebooks/course, whose cells ask for answers and check
them.

Students:

  lockstep course check 03-server.ipynb     which tasks are done, and what the others lack
  lockstep course report 03-server.ipynb --out report.pdf
  lockstep course submit 03-server.ipynb    pack it, with the runs of its answers

Teachers:

  lockstep course release notebooks/course RELEASE     without solutions and outputs
  lockstep course grade *.zip --release RELEASE --csv grades.csv

notebooks/course/README.md is the guide for teachers.`,
	}
	c.AddCommand(courseCheckCommand(), courseReleaseCommand(), courseSubmitCommand(), courseGradeCommand(), courseReportCommand())
	return c
}

func addTasksFlag(c *cobra.Command, tasks *string) {
	c.Flags().StringVar(tasks, "tasks", os.Getenv(course.TasksVariable), "a folder with task files (NN-title.yaml) that add to the shipped tasks or replace them")
}

// notebookTasks returns the tasks in the folder tasks or, if that is "", beside the notebook.
func notebookTasks(tasks, notebook string) (course.Tasks, error) {
	if tasks != "" {
		return course.ReadTasks(tasks)
	}
	return course.TasksBeside(filepath.Dir(notebook))
}

// findNotebookKernel returns the path of the kernel beside the lockstep command.
func findNotebookKernel() (string, error) {
	command, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(cmp.Or(os.Getenv(kernelspec.CommandVariable), command)), "lockstep-kernel")
	if _, err := os.Stat(path); err != nil {
		return "", cli.AsMissingError(fmt.Errorf("find the kernel: %w; build it beside this command: go run ./kernels/build", err))
	}
	return path, nil
}

func courseCheckCommand() *cobra.Command {
	var tasks string
	var read bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "check NOTEBOOK",
		Short: "Show which tasks of a notebook are done, and what the others lack",
		Long: `Executes the notebook in a fresh kernel, from top to bottom, and shows which tasks are
done, and what is wrong or missing in the open ones. A function also runs alone, as a
grader runs it. Sweeps that have finished are not run again (their cells set Resume), so a
second check takes seconds. The notebook is not changed.

With --read no cell is executed: the outputs in the file are judged.

Exit codes: 0 all tasks are done; 1 some are not.`,
		Args: cli.ExactArgs(1, "name one notebook, for example 03-server.ipynb"),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := notebookTasks(tasks, args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			o := course.CheckOptions{CellTimeout: timeout}
			if !read {
				if o.Kernel, err = findNotebookKernel(); err != nil {
					return err
				}
				o.Executing = func(cell, cells int, line string) {
					fmt.Fprintf(c.ErrOrStderr(), "cell %d of %d: %s\n", cell, cells, clean.EscapeText(line))
				}
			}
			states, err := course.CheckNotebook(c.Context(), args[0], all, o)
			if err != nil {
				return err
			}
			return printStates(c.OutOrStdout(), states)
		},
	}
	addTasksFlag(c, &tasks)
	c.Flags().BoolVar(&read, "read", false, "judge the outputs in the file; execute nothing")
	c.Flags().DurationVar(&timeout, "timeout", 15*time.Minute, "time limit of each cell")
	return c
}

// printStates prints the states. It returns an error if a task is not done.
func printStates(w io.Writer, states []course.TaskState) error {
	open := 0
	for _, s := range states {
		mark := "done"
		if !s.Done {
			mark = "open"
			open++
		}
		line := fmt.Sprintf("%s  %-12s %4g  %s", mark, s.Task.ID, s.Task.Points, s.Task.Kind)
		if s.Reason != "" {
			line += ": " + strings.ReplaceAll(clean.EscapeMultiline(s.Reason), "\n", "\n                         ")
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if open > 0 {
		return fmt.Errorf("%d of %s are open", open, english.FormatCount(len(states), "task"))
	}
	return nil
}

func courseReleaseCommand() *cobra.Command {
	var tasks string
	c := &cobra.Command{
		Use:   "release SOURCE OUT",
		Short: "Write the students' version of notebooks",
		Long: `Writes the students' version of the notebook SOURCE, or of every notebook in the folder
SOURCE, to the folder OUT: without outputs, solutions and hidden tests, with the metadata
and checksums of nbgrader 0.9. Beside each notebook it writes the file of its tasks,
without answers.`,
		Args: cli.ExactArgs(2, "name a notebook or a folder of notebooks, and the folder of the release"),
		RunE: func(c *cobra.Command, args []string) error {
			notebook := args[0]
			if info, err := os.Stat(notebook); err == nil && info.IsDir() {
				notebook = filepath.Join(notebook, "*.ipynb")
			}
			all, err := notebookTasks(tasks, notebook)
			if err != nil {
				return cli.AsUsageError(err)
			}
			written, err := course.Release(args[0], args[1], all)
			for _, path := range written {
				fmt.Fprintln(c.OutOrStdout(), path)
			}
			return err
		},
	}
	addTasksFlag(c, &tasks)
	return c
}

func courseSubmitCommand() *cobra.Command {
	var tasks, name, out string
	c := &cobra.Command{
		Use:   "submit NOTEBOOK",
		Short: "Pack a notebook and the runs of its answers for the teacher",
		Long: `Writes a zip file with the notebook, as it was saved, and with the runs that its right
answers name: run.json, epochs.csv, classes.csv, images.csv, out.log, load.csv and the use
of the machine, about 25 kB a run. It lists the tasks without a right answer.`,
		Args: cli.ExactArgs(1, "name one notebook, for example 03-server.ipynb"),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := notebookTasks(tasks, args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			if name == "" {
				u, err := user.Current()
				if err != nil {
					return cli.AsUsageError(fmt.Errorf("find your name: %w; use --name", err))
				}
				name = u.Username
			}
			out = cmp.Or(out, strings.TrimSuffix(filepath.Base(args[0]), ".ipynb")+"-"+name+".zip")
			if err := cli.CheckOutput(out, args[0]); err != nil {
				return err
			}
			kernel, err := findNotebookKernel()
			if err != nil {
				fmt.Fprintln(c.OutOrStdout(), "functions were not run as a grader does:", err)
			}
			missing, err := course.Submit(c.Context(), args[0], course.SubmitOptions{Student: name, Out: out, Kernel: kernel}, all)
			if err != nil {
				return err
			}
			for _, m := range missing {
				fmt.Fprintln(c.OutOrStdout(), "without a right answer:", strings.ReplaceAll(clean.EscapeMultiline(m), "\n", "\n  "))
			}
			fmt.Fprintln(c.OutOrStdout(), "wrote", out, "for", name)
			return nil
		},
	}
	addTasksFlag(c, &tasks)
	c.Flags().StringVar(&name, "name", "", "your name in the submission (default: your user name)")
	c.Flags().StringVarP(&out, "out", "o", "", "the zip file (default: NOTEBOOK-NAME.zip)")
	return c
}

func courseGradeCommand() *cobra.Command {
	var o course.GradeOptions
	var table string
	c := &cobra.Command{
		Use:   "grade SUBMISSION…",
		Short: "Grade submissions",
		Long: `Grades zip files of lockstep course submit. Numbers and choices are judged by this
process, from the answers in the notebook and the submitted runs; no cell is executed. A
function is executed alone, in a fresh kernel, with random inputs, and compared with the
task's reference. Texts get no points here: column by_hand contains how many a person can
give.

The functions of students read what your user can read: grade as a separate user.`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return cli.AsUsageError(errors.New("name the submissions, for example *.zip"))
			}
			if o.Release == "" {
				return cli.AsUsageError(fmt.Errorf("name the folder of the released notebooks with --release"))
			}
			if o.Kernel, err = findNotebookKernel(); err != nil {
				return err
			}
			if table != "" {
				if err := cli.CheckOutput(table, args...); err != nil {
					return err
				}
			}
			grades, err := course.Grades(c.Context(), args, o)
			if err != nil {
				return err
			}
			if table == "" {
				return course.WriteGrades(c.OutOrStdout(), grades)
			}
			if err := wholefile.Write(table, 0o644, func(f *os.File) error { return course.WriteGrades(f, grades) }); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "wrote", table, "with", english.FormatCount(len(grades), "row"))
			return err
		},
	}
	c.Flags().StringVar(&o.Release, "release", "", "the folder of the released notebooks")
	c.Flags().StringVar(&o.Tests, "tests", "", "a folder with task files that add to the shipped tasks or replace them, with answers")
	c.Flags().DurationVar(&o.CellTimeout, "timeout", time.Minute, "time limit of each cell and call of a student's function")
	c.Flags().StringVar(&table, "csv", "", "write the grades to this file instead of standard output")
	return c
}

func courseReportCommand() *cobra.Command {
	var tasks, out, name string
	c := &cobra.Command{
		Use:   "report NOTEBOOK",
		Short: "Write a notebook's answers as a page or a PDF for the hand-in",
		Long: `Writes one page (.html or .pdf) with each task, your text and code, the numbers with the
files and lines that they come from, the lines of the runs' logs, and the figures.`,
		Args: cli.ExactArgs(1, "name one notebook, for example 03-server.ipynb"),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := notebookTasks(tasks, args[0])
			if err != nil {
				return cli.AsUsageError(err)
			}
			if err := cli.CheckOutput(out, args[0]); err != nil {
				return err
			}
			page, err := course.NewPage(c.Context(), args[0], name, all)
			if err != nil {
				return err
			}
			if err := page.Save(c.Context(), out); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "wrote", out)
			return err
		},
	}
	addTasksFlag(c, &tasks)
	c.Flags().StringVarP(&out, "out", "o", "report.html", "the file, .html or .pdf")
	c.Flags().StringVar(&name, "name", "", "your name on the page")
	return c
}
