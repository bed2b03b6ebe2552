package mpi

import (
	"fmt"
	"strings"
	"unsafe"

	"lockstep/pkg/internal/clib"
)

// Open finds MPI, checks that it is the implementation name, and looks up its functions.
func Open(s *clib.Search, name clib.LibraryName) (*Library, error) {
	bind := bindMPICH
	if name == clib.OpenMPI {
		bind = bindOpenMPI
	}
	return clib.LoadFunctionTable(s, name, bind, clib.VersionCheck[Library]{Symbol: "MPI_Get_library_version", Check: (*Library).checkImplementation})
}

// DetectImplementation returns the MPI implementation whose launcher started this process. It
// recognizes the launcher by its environment variables: mpirun of Open MPI sets
// OMPI_COMM_WORLD_SIZE, mpirun of MPICH and srun --mpi=pmi2 set PMI_RANK, and srun --mpi=pmix,
// which Open MPI needs, sets PMIX_RANK. The result is "" if no MPI launcher started this process.
func DetectImplementation(getenv func(string) string) clib.LibraryName {
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "":
		return clib.OpenMPI
	case getenv("PMI_RANK") != "":
		return clib.MPICH
	case getenv("PMIX_RANK") != "":
		return clib.OpenMPI
	}
	return ""
}

// checkImplementation returns a *clib.VersionError if the library is not the implementation that its file name
// suggests. All implementations of MPI 3.0 (2012) or newer are supported.
func (l *Library) checkImplementation() error {
	known := []string{"Open MPI"}
	if l.Name == clib.MPICH {
		known = []string{"MPICH", "Intel(R) MPI", "MVAPICH"}
	}
	version := l.Version()
	for _, k := range known {
		if strings.HasPrefix(version, k) {
			return nil
		}
	}
	return &clib.VersionError{
		Library: l.Name, Path: l.Path, Have: fmt.Sprintf("%q", version), Want: strings.Join(known, " or "),
		Advice: "check that LD_LIBRARY_PATH names the folder of the implementation whose mpirun started this process",
	}
}

// predefinedHandles contains an implementation's values for constants of the MPI standard.
type predefinedHandles struct {
	world        uintptr // MPI_COMM_WORLD
	sum          uintptr // MPI_SUM
	inPlace      uintptr // MPI_IN_PLACE
	ignoreStatus uintptr // MPI_STATUS_IGNORE
	returnErrors uintptr // MPI_ERRORS_RETURN
	noInfo       uintptr // MPI_INFO_NULL
	types        [dataTypes]uintptr
}

// mpichHandles returns the constants of the MPICH ABI, which has not changed since 2013.
func mpichHandles() predefinedHandles {
	return predefinedHandles{
		world: 0x44000000, sum: 0x58000003, inPlace: ^uintptr(0), ignoreStatus: 1, returnErrors: 0x54000001, noInfo: 0x1c000000,
		types: [dataTypes]uintptr{Byte: 0x4c00010d, Float32: 0x4c00040a, Float64: 0x4c00080b},
	}
}

func bindMPICH(path string, need func(string) uintptr) *Library {
	l := &Library{Name: clib.MPICH, Path: path}
	l.bindFunctions(mpichHandles(), need)
	return l
}

func bindOpenMPI(path string, need func(string) uintptr) *Library {
	l := &Library{Name: clib.OpenMPI, Path: path}
	l.bindFunctions(predefinedHandles{
		world: need("ompi_mpi_comm_world"), sum: need("ompi_mpi_op_sum"), inPlace: 1, ignoreStatus: 0,
		returnErrors: need("ompi_mpi_errors_return"), noInfo: need("ompi_mpi_info_null"),
		types: [dataTypes]uintptr{Byte: need("ompi_mpi_byte"), Float32: need("ompi_mpi_float"), Float64: need("ompi_mpi_double")},
	}, need)
	return l
}

// Sizes of text buffers. Both are at least as large as mpi.h of each implementation requires.
const (
	maxVersionBytes = 8192
	maxErrorBytes   = 512
)

// threadFunneled is MPI_THREAD_FUNNELED: only the thread that called Init calls MPI.
const threadFunneled = 1

func (l *Library) bindFunctions(h predefinedHandles, need func(string) uintptr) {
	check := newResultChecker(need)
	version, initialize, finalize := need("MPI_Get_library_version"), need("MPI_Init_thread"), need("MPI_Finalize")
	handler, rank, size := need("MPI_Comm_set_errhandler"), need("MPI_Comm_rank"), need("MPI_Comm_size")
	l.Version = func() string {
		text := make([]byte, maxVersionBytes)
		var n int32
		clib.Call(version, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)))
		first, _, _ := strings.Cut(clib.GoString(text), "\n")
		return first
	}
	l.Init = func() error {
		var provided int32
		if err := check("MPI_Init_thread", clib.Call(initialize, 0, 0, threadFunneled, uintptr(unsafe.Pointer(&provided)))); err != nil {
			return err
		}
		if provided < threadFunneled {
			return fmt.Errorf("MPI_Init_thread: %s (%s) provides thread level %d only, and a process with several threads needs %d: use a build with threads", l.Name, l.Path, provided, threadFunneled)
		}
		return check("MPI_Comm_set_errhandler", clib.Call(handler, h.world, h.returnErrors))
	}
	l.Finalize = func() error { return check("MPI_Finalize", clib.Call(finalize)) }
	number := func(name string, fn uintptr) func() (int, error) {
		return func() (int, error) {
			var n int32
			err := check(name, clib.Call(fn, h.world, uintptr(unsafe.Pointer(&n))))
			return int(n), err
		}
	}
	l.Rank, l.Size = number("MPI_Comm_rank", rank), number("MPI_Comm_size", size)
	l.bindMemoryFunctions(h, need, check)
	l.bindCollectiveFunctions(h, need, check)
	l.bindMessageFunctions(h, need, check)
}

// resultChecker returns an error unless result, the result of the C function name, is
// MPI_SUCCESS.
type resultChecker func(name string, result uintptr) error

func newResultChecker(need func(string) uintptr) resultChecker {
	text := need("MPI_Error_string")
	return func(name string, result uintptr) error {
		code := int32(result)
		if code == 0 {
			return nil
		}
		message := make([]byte, maxErrorBytes)
		var n int32
		clib.Call(text, uintptr(code), uintptr(unsafe.Pointer(&message[0])), uintptr(unsafe.Pointer(&n)))
		return fmt.Errorf("%s: error %d: %s", name, code, clib.GoString(message))
	}
}

func (l *Library) bindMemoryFunctions(h predefinedHandles, need func(string) uintptr, check resultChecker) {
	alloc, free := need("MPI_Alloc_mem"), need("MPI_Free_mem")
	l.AllocMem = func(bytes int) (unsafe.Pointer, error) {
		var p unsafe.Pointer
		err := check("MPI_Alloc_mem", clib.Call(alloc, uintptr(bytes), h.noInfo, uintptr(unsafe.Pointer(&p))))
		return p, err
	}
	l.FreeMem = func(p unsafe.Pointer) error { return check("MPI_Free_mem", clib.Call(free, uintptr(p))) }
}

func (l *Library) bindCollectiveFunctions(h predefinedHandles, need func(string) uintptr, check resultChecker) {
	reduce, ireduce, broadcast := need("MPI_Allreduce"), need("MPI_Iallreduce"), need("MPI_Ibcast")
	scatter, gather := need("MPI_Ireduce_scatter"), need("MPI_Iallgatherv")
	l.AllReduce = func(b unsafe.Pointer, count int, t DataType) error {
		return check("MPI_Allreduce", clib.Call(reduce, h.inPlace, uintptr(b), uintptr(count), h.types[t], h.sum, h.world))
	}
	l.IAllReduce = func(r *Request, b unsafe.Pointer, count int, t DataType) error {
		return check("MPI_Iallreduce", clib.Call(ireduce, h.inPlace, uintptr(b), uintptr(count), h.types[t], h.sum, h.world, uintptr(unsafe.Pointer(r))))
	}
	l.IBroadcast = func(r *Request, b unsafe.Pointer, count int, t DataType, root int) error {
		return check("MPI_Ibcast", clib.Call(broadcast, uintptr(b), uintptr(count), h.types[t], uintptr(root), h.world, uintptr(unsafe.Pointer(r))))
	}
	l.IReduceScatter = func(r *Request, b unsafe.Pointer, counts []int32, t DataType) error {
		return check("MPI_Ireduce_scatter", clib.Call(scatter, h.inPlace, uintptr(b), uintptr(unsafe.Pointer(&counts[0])), h.types[t], h.sum, h.world, uintptr(unsafe.Pointer(r))))
	}
	l.IAllGather = func(r *Request, b unsafe.Pointer, counts, offsets []int32, t DataType) error {
		return check("MPI_Iallgatherv", clib.Call(gather, h.inPlace, 0, h.types[Byte], uintptr(b),
			uintptr(unsafe.Pointer(&counts[0])), uintptr(unsafe.Pointer(&offsets[0])), h.types[t], h.world, uintptr(unsafe.Pointer(r))))
	}
}

func (l *Library) bindMessageFunctions(h predefinedHandles, need func(string) uintptr, check resultChecker) {
	send, receive, test := need("MPI_Isend"), need("MPI_Irecv"), need("MPI_Test")
	l.ISend = func(r *Request, b unsafe.Pointer, count int, t DataType, to, tag int) error {
		return check("MPI_Isend", clib.Call(send, uintptr(b), uintptr(count), h.types[t], uintptr(to), uintptr(tag), h.world, uintptr(unsafe.Pointer(r))))
	}
	l.IReceive = func(r *Request, b unsafe.Pointer, count int, t DataType, from, tag int) error {
		return check("MPI_Irecv", clib.Call(receive, uintptr(b), uintptr(count), h.types[t], uintptr(from), uintptr(tag), h.world, uintptr(unsafe.Pointer(r))))
	}
	var done int32 // not on the stack: MPI is used by one thread
	l.Test = func(r *Request) (bool, error) {
		err := check("MPI_Test", clib.Call(test, uintptr(unsafe.Pointer(r)), uintptr(unsafe.Pointer(&done)), h.ignoreStatus))
		return done != 0, err
	}
}
