package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"lockstep/pkg/bench/internal/comparison"
	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/mpi"
)

// openMPIRank is one rank of the Open MPI side. mpirun passes the requests to rank 0, which sends them to the
// other ranks and answers for all. It does what a small MPI program in C would do, MPI_Allreduce in place on
// memory from MPI_Alloc_mem, but needs no C compiler.
type openMPIRank struct {
	lib         *mpi.Library
	rank, ranks int
	control     unsafe.Pointer // a allReduceRequest; the size is 0 at the end
	buffer      unsafe.Pointer
	size        int // bytes of buffer
}

// requestPollInterval is how often the other ranks look for a request. They sleep between, so that they take no
// processor time from the measured side.
const requestPollInterval = time.Millisecond

// answerWithOpenMPI runs a worker with the task openmpi.
func answerWithOpenMPI(in io.Reader, out io.Writer) (err error) {
	runtime.LockOSThread() // for good: MPI is used by one thread
	if mpi.DetectImplementation(os.Getenv) != clib.OpenMPI {
		return errors.New("bench worker: mpirun of Open MPI has not started this process")
	}
	lib, err := mpi.Open(clib.NewSearch(clib.Environment{}), clib.OpenMPI)
	if err != nil {
		return err
	}
	if err := lib.Init(); err != nil {
		return err
	}
	s := &openMPIRank{lib: lib}
	// Finalize would wait forever for ranks that wait for this one. mpirun ends them with this process.
	if err := s.answerRequests(in, out); err != nil {
		return err
	}
	return lib.Finalize()
}

func (s *openMPIRank) answerRequests(in io.Reader, out io.Writer) error {
	var errs [3]error
	s.rank, errs[0] = s.lib.Rank()
	s.ranks, errs[1] = s.lib.Size()
	s.control, errs[2] = s.lib.AllocMem(int(unsafe.Sizeof(allReduceRequest{})))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if s.rank != 0 {
		return s.followRequests()
	}
	encoder := json.NewEncoder(out)
	name, _, _ := strings.Cut(s.lib.Version(), ",")
	if err := encoder.Encode(comparison.Greeting{Name: name, Threads: 1}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			return errors.New("bench worker: empty request")
		}
		r, err := parseReduceRequest(words)
		if err != nil {
			return fmt.Errorf("bench worker: %w", err)
		}
		if err := s.broadcastRequest(r); err != nil {
			return err
		}
		a, err := s.answerAllReduce(r)
		if err != nil {
			return err
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
	return s.broadcastRequest(allReduceRequest{})
}

func (s *openMPIRank) followRequests() error {
	for {
		if err := s.broadcastRequest(allReduceRequest{}); err != nil {
			return err
		}
		r := *(*allReduceRequest)(s.control)
		if r.size == 0 {
			return nil
		}
		if _, err := s.answerAllReduce(r); err != nil {
			return err
		}
	}
}

func (s *openMPIRank) broadcastRequest(r allReduceRequest) error {
	*(*allReduceRequest)(s.control) = r
	request := new(mpi.Request)
	if err := s.lib.IBroadcast(request, s.control, int(unsafe.Sizeof(r)), mpi.Byte, 0); err != nil {
		return err
	}
	for {
		done, err := s.lib.Test(request)
		if done || err != nil {
			return err
		}
		time.Sleep(requestPollInterval)
	}
}

func (s *openMPIRank) answerAllReduce(r allReduceRequest) (comparison.Answer, error) {
	if r.size != s.size {
		if err := s.resizeBuffer(r.size); err != nil {
			return comparison.Answer{}, err
		}
	}
	b := unsafe.Slice((*float32)(s.buffer), r.size/4)
	a, err := r.answer(b, s.rank, s.ranks, s.barrier, func() error { return s.lib.AllReduce(s.buffer, len(b), mpi.Float32) })
	if err != nil {
		return a, err
	}
	return combineAnswers(a, s.rank, s.ranks, func(all []float64) error {
		return s.lib.AllReduce(unsafe.Pointer(&all[0]), len(all), mpi.Float64)
	})
}

// barrier waits until all ranks have called it. It is an all-reduce, which no rank can complete
// before every rank has contributed.
func (s *openMPIRank) barrier() error {
	one := new(float64)
	return s.lib.AllReduce(unsafe.Pointer(one), 1, mpi.Float64)
}

func (s *openMPIRank) resizeBuffer(size int) error {
	if s.buffer != nil {
		if err := s.lib.FreeMem(s.buffer); err != nil {
			return err
		}
	}
	var err error
	s.buffer, err = s.lib.AllocMem(size)
	s.size = size
	return err
}
