package mpirun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFind: the implementation is known from the version that mpirun prints.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Find(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no mpirun on this machine: install Open MPI") {
		t.Errorf("got error %v, want how to install mpirun", err)
	}
	for _, c := range []struct{ script, kind, err string }{
		{"echo 'mpirun (Open MPI) 5.0.3'", OpenMPI, ""},
		{"echo 'mpirun.openmpi (OpenRTE) 4.1.4'", OpenMPI, ""},
		{"echo 'HYDRA build details:'; echo '    Version: 4.0.2'", MPICH, ""},
		{"echo 'Intel(R) MPI Library for Linux* OS, Version 2021.9'", MPICH, ""},
		{"echo 'mpirun 1.0'", "", `belongs to neither Open MPI nor MPICH (its version is "mpirun 1.0")`},
		{"echo 'no license' >&2; exit 3", "", "for its version: exit status 3: no license"},
	} {
		path := filepath.Join(dir, "mpiexec")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := Find(t.Context(), "")
		if c.err == "" && (err != nil || l != Launcher{Path: path, Kind: c.kind}) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %+v, %v, want %s and error %q", c.script, l, err, c.kind, c.err)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Setenv("OMPI_MCA_hwloc_base_binding_policy", "")
	job := Job{Processes: 4, Hostfile: "h", SeveralHosts: true, Oversubscribe: true, Forward: []string{"A", "B"}, Command: []string{"x", "-n"}}
	if got, want := (Launcher{"mpirun", MPICH}).Arguments(job), "mpirun -f h -n 4 x -n"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	open := Launcher{"mpirun", OpenMPI}
	root := func(s string) bool { return s == "--allow-run-as-root" }
	if got, want := slices.DeleteFunc(open.Arguments(job), root), "mpirun --hostfile h --oversubscribe --bind-to none -x A -x B -n 4 x -n"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("OMPI_MCA_hwloc_base_binding_policy", "core")
	if got, want := slices.DeleteFunc(open.Arguments(Job{Processes: 1, Command: []string{"x"}}), root), "mpirun -n 1 x"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFirstHost(t *testing.T) {
	for text, want := range map[string]string{
		"# hosts\n\n  node1 slots=4 # first\nnode2\n": "node1",
		"node1:4\nnode2:4\n":                          "node1",
		"fe80::1\n":                                   "fe80::1",
	} {
		if got, err := parseFirstHost(strings.NewReader(text), "hosts"); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := parseFirstHost(strings.NewReader("#\n"), "hosts"); err == nil || !strings.Contains(err.Error(), "read hostfile hosts: it names no host") {
		t.Errorf("got error %v, want that there is no host", err)
	}
}
