package stack

import (
	"errors"
	"fmt"

	"lockstep/pkg/internal/clib"
	"lockstep/pkg/internal/clib/cublaslt"
	"lockstep/pkg/internal/clib/cuda"
	"lockstep/pkg/internal/clib/cudnn"
	"lockstep/pkg/internal/clib/cupti"
	"lockstep/pkg/internal/clib/nccl"
	"lockstep/pkg/internal/clib/nvml"
	"lockstep/pkg/internal/clib/nvrtc"
	"lockstep/pkg/internal/clib/nvtx"
)

// Report describes a machine's GPUs and the libraries that GPU runs need.
type Report struct {
	Libraries []Library
	Devices   []Device
	Problem   error // why no GPU can be used; nil if one can
	Looked    []clib.SearchPlace
}

// Library describes one library in a Report.
type Library struct {
	Name    clib.LibraryName
	Version string
	Path    string
	Use     string // what Lockstep uses the library for
	Problem error  // why it cannot be used, or nil
}

// Device describes one GPU in a Report.
type Device struct {
	Index           int
	Name            string
	MemoryBytes     int64
	Compute         [2]int // compute capability
	Multiprocessors int
	ClockMHz        int    // 0 if the driver does not report it
	BusID           string // "" if the driver does not report it
}

// Probe reports the libraries and the driver's devices. It opens each library separately, so that
// the report lists all problems. It creates no context on a device.
func Probe(s *clib.Search) *Report {
	r := &Report{}
	if clib.Supported {
		r.Looked = s.Places()
	}
	driver, err := cuda.Open(s)
	if err == nil {
		preferDriverVersion(s, driver)
	}
	r.addDriver(driver, err)
	nv, err := nvml.Open(s)
	r.addNVML(nv, err)
	rt, err := nvrtc.Open(s)
	r.addNVRTC(rt, err)
	dnn, err := cudnn.Open(s)
	r.addCUDNN(dnn, err)
	lt, err := cublaslt.Open(s)
	l := Library{Name: clib.CublasLt, Use: "matrix products", Problem: err}
	if err == nil {
		l.Version, l.Path = cublaslt.FormatVersion(lt.Version()), lt.Path
	}
	r.Libraries = append(r.Libraries, l)
	comm, err := nccl.Open(s)
	r.addNCCL(comm, err)
	marks, err := nvtx.Open(s)
	r.Libraries = append(r.Libraries, Library{Name: clib.NVTX, Use: "marks for profilers", Path: marks.Path, Problem: err})
	prof, err := cupti.Open(s)
	l = Library{Name: clib.CUPTI, Use: "kernel times in graphs", Problem: err}
	if err == nil {
		l.Path = prof.Path
		if v, err := prof.Version(); err == nil {
			l.Version = fmt.Sprint(v)
		}
	}
	r.Libraries = append(r.Libraries, l)
	r.addDevices(driver, &Stack{Driver: driver, NVRTC: rt, CUDNN: dnn})
	return r
}

// Report returns a report on the libraries of st and the machine's GPUs.
func (st *Stack) Report() *Report {
	r := &Report{}
	r.addDriver(st.Driver, nil)
	r.addNVML(st.NVML, st.Missing[clib.NVML])
	r.addNVRTC(st.NVRTC, nil)
	r.addCUDNN(st.CUDNN, nil)
	r.addNCCL(st.NCCL, st.Missing[clib.NCCL])
	r.addDevices(st.Driver, st)
	return r
}

func (r *Report) addDevices(driver *cuda.Driver, st *Stack) {
	for _, l := range r.Libraries {
		if l.Problem == nil {
			continue
		}
		switch l.Name {
		case clib.CUDA:
			// Without a driver there is no GPU, and other problems do not matter.
			r.Problem = l.Problem
			return
		case clib.NVRTC, clib.CUDNN:
			r.Problem = errors.Join(r.Problem, l.Problem)
		}
	}
	err := driver.Init()
	if err == nil {
		r.Devices, err = describeDevices(driver)
	}
	if err == nil && len(r.Devices) == 0 {
		err = &cuda.Error{Call: "cuDeviceGetCount", Result: cuda.ErrorNoDevice}
	}
	if err == nil && r.Problem == nil {
		err = st.checkMajorVersions()
	}
	r.Problem = errors.Join(err, r.Problem)
}

func (r *Report) addDriver(d *cuda.Driver, err error) {
	l := Library{Name: clib.CUDA, Use: "GPU runs", Problem: err}
	if err == nil {
		var v int
		v, l.Problem = d.Version()
		l.Version, l.Path = cuda.FormatVersion(v), d.Path
	}
	r.Libraries = append(r.Libraries, l)
}

func (r *Report) addNVML(n *nvml.Library, err error) {
	l := Library{Name: clib.NVML, Use: "utilization, power and energy", Problem: err}
	if err == nil {
		l.Path = n.Path
		if l.Problem = n.Init(); l.Problem == nil {
			l.Version, l.Problem = n.DriverVersion()
		}
	}
	r.Libraries = append(r.Libraries, l)
}

func (r *Report) addNVRTC(n *nvrtc.Library, err error) {
	l := Library{Name: clib.NVRTC, Use: "GPU runs: compiles the kernels", Problem: err}
	if err == nil {
		var major, minor int
		major, minor, l.Problem = n.Version()
		l.Version, l.Path = fmt.Sprintf("%d.%d", major, minor), n.Path
	}
	r.Libraries = append(r.Libraries, l)
}

func (r *Report) addCUDNN(c *cudnn.Library, err error) {
	l := Library{Name: clib.CUDNN, Use: "GPU runs: convolutions", Problem: err}
	if err == nil {
		l.Version, l.Path = cudnn.FormatVersion(c.Version()), c.Path
	}
	r.Libraries = append(r.Libraries, l)
}

func (r *Report) addNCCL(n *nccl.Library, err error) {
	l := Library{Name: clib.NCCL, Use: "several GPUs", Problem: err}
	if err == nil {
		var v int
		v, l.Problem = n.Version()
		l.Version, l.Path = nccl.FormatVersion(v), n.Path
	}
	r.Libraries = append(r.Libraries, l)
}

// describeDevices describes the GPUs that d lists. d must be initialized.
func describeDevices(d *cuda.Driver) ([]Device, error) {
	n, err := d.DeviceCount()
	if err != nil {
		return nil, err
	}
	var all []Device
	for i := range n {
		dev, err := d.DeviceGet(i)
		if err != nil {
			return nil, err
		}
		x := Device{Index: i}
		var errs [5]error
		x.Name, errs[0] = d.DeviceName(dev)
		x.MemoryBytes, errs[1] = d.DeviceTotalMem(dev)
		x.Compute[0], errs[2] = d.DeviceAttribute(dev, cuda.ComputeCapabilityMajor)
		x.Compute[1], errs[3] = d.DeviceAttribute(dev, cuda.ComputeCapabilityMinor)
		x.Multiprocessors, errs[4] = d.DeviceAttribute(dev, cuda.MultiprocessorCount)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		// A virtual GPU may not report these attributes, but can be used.
		if kilohertz, err := d.DeviceAttribute(dev, cuda.ClockRate); err == nil {
			x.ClockMHz = kilohertz / 1000
		}
		if x.BusID, err = d.DevicePCIBusID(dev); err != nil {
			x.BusID = ""
		}
		all = append(all, x)
	}
	return all, nil
}
