package jupyterhub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const coresFolder = "/run/lockstep/cores" // CORES of the config

// classmates are all students who launch sweeps in testCores.
func classmates() []string {
	return []string{"anna", "ben", "student3", "student4", "student5", "student6", "student7", "student8"}
}

// launched is the sweep of a student that a shell runs.
type launched struct {
	name string
	cmd  *exec.Cmd
	mu   sync.Mutex
	out  bytes.Buffer
}

func (l *launched) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *launched) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *launched) isRunning() bool { return strings.Contains(l.text(), "] up") }

var placeLine = regexp.MustCompile(`waiting for 1 core: (\d+) of (\d+) are free, place (\d+) of (\d+); starts at the latest at `)

// place returns the sweep's last place among those that wait, and the number of the machine's cores; 0 if it has not
// waited.
func (l *launched) place() (place, cores int) {
	all := placeLine.FindAllStringSubmatch(l.text(), -1)
	if len(all) == 0 {
		return 0, 0
	}
	m := all[len(all)-1]
	cores, _ = strconv.Atoi(m[2])
	place, _ = strconv.Atoi(m[3])
	return place, cores
}

// startSweep starts a sweep of one worker, which runs until release.
func startSweep(t *testing.T, name, limit string) *launched {
	t.Helper()
	l := &launched{name: name}
	l.cmd = as(t, name, "sh", "-c", `rm -f gate && mkfifo gate && exec lockstep launch --lines --study shared --workers 1 -- sh -c 'echo up; read line < ~/gate'`)
	l.cmd.Env = append(l.cmd.Env, "LOCKSTEP_CORES="+coresFolder, "LOCKSTEP_CORES_WAIT="+limit)
	l.cmd.Stdout, l.cmd.Stderr = l, l
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l
}

// release ends the program of the sweep, and with it the sweep.
func (l *launched) release(t *testing.T) {
	t.Helper()
	gate, err := os.OpenFile(filepath.Join("/home", l.name, "gate"), os.O_WRONLY, 0)
	if err == nil {
		_, err = gate.WriteString("\n")
	}
	if err == nil {
		err = gate.Close()
	}
	if err == nil {
		err = l.cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", l.name, err, l.text())
	}
}

// testCores: the sweeps of eight students never use more cores than the machine has; the others wait, see their
// places and start in this order. One that may not wait longer starts, and its run is marked.
func testCores(t *testing.T) {
	names := classmates()
	for _, name := range names[2:] { // the hub has done it for those who have logged in
		id := strings.TrimSpace(run(t, "id", "-u", name))
		run(t, "install", "-d", "-o", id, filepath.Join(coresFolder, id))
	}
	var all []*launched
	for _, name := range names[:7] {
		all = append(all, startSweep(t, name, "1h"))
	}
	cores := 0
	count := func() (running []*launched, waiting map[int]*launched) {
		waiting = map[int]*launched{}
		for _, l := range all {
			if l.isRunning() {
				running = append(running, l)
			} else if place, n := l.place(); place > 0 {
				waiting[place], cores = l, n
			}
		}
		return running, waiting
	}
	settle := func(sweeps int) (running []*launched, first *launched) {
		t.Helper()
		await(t, "each sweep runs or has a place", func() bool {
			var waiting map[int]*launched
			running, waiting = count()
			first = waiting[1]
			for place := range len(waiting) {
				if waiting[place+1] == nil {
					return false
				}
			}
			return len(running)+len(waiting) == sweeps && (len(waiting) == 0 || len(running) >= cores)
		})
		return running, first
	}
	running, first := settle(7)
	if cores > 0 && len(running) != cores {
		t.Errorf("%d sweeps run on %d cores", len(running), cores)
	}
	checkClaims(t, cores)

	hasty := startSweep(t, names[7], "500ms")
	await(t, "the sweep that may not wait longer starts", hasty.isRunning)
	if place, _ := hasty.place(); cores > 0 && place != 7-cores+1 {
		t.Errorf("it had place %d, want %d:\n%s", place, 7-cores+1, hasty.text())
	}
	checkClaims(t, cores)
	hasty.release(t)
	info, err := os.ReadFile(filepath.Join("/home", hasty.name, "logs", "shared", "sh-n1-s1", "run.json"))
	if want := `other sweeps disturb the times of this run: it needs 1 core, and sweeps of other users left 0 when it started`; err != nil || cores > 0 && !bytes.Contains(info, []byte(want)) {
		t.Errorf("run.json: %v\n%s\nwant the note %q", err, info, want)
	}

	for sweeps := 6; sweeps >= 0; sweeps-- {
		ended := running[0]
		ended.release(t)
		all = slices.DeleteFunc(all, func(l *launched) bool { return l == ended })
		next := first
		running, first = settle(sweeps)
		if next != nil && !next.isRunning() {
			t.Errorf("%s was first in the queue and does not run:\n%s", next.name, next.text())
		}
		checkClaims(t, cores)
	}
}

// checkClaims checks that the sweeps of all students together have at most the given number of cores, and each CPU
// once.
func checkClaims(t *testing.T, cores int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(coresFolder, "*", "sweep.json"))
	if err != nil {
		t.Fatal(err)
	}
	used, counted := map[int]string{}, 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		var file struct {
			CPUs  []int
			Cores int
		}
		if err == nil {
			err = json.Unmarshal(text, &file)
		}
		if err != nil {
			t.Fatal(err)
		}
		counted += file.Cores
		for _, id := range file.CPUs {
			if used[id] != "" {
				t.Errorf("CPU %d is claimed by %s and %s", id, used[id], path)
			}
			used[id] = path
		}
	}
	if cores > 0 && len(used) == 0 && counted > cores {
		t.Errorf("%d cores are claimed, but the machine has %d", counted, cores)
	}
	if len(files) > 0 {
		t.Log(fmt.Sprint("claimed CPUs: ", used))
	}
}
