// Package cu replaces gorgonia.org/cu in a kernel that was built without it. It declares what
// notebooks/first-gpu-kernel.ipynb uses. Every call returns an error that says how to get the real package.
//
//nolint:revive,depguard // names, signatures and the use of unsafe are those of gorgonia.org/cu
package cu

import (
	"errors"
	"reflect"
	"unsafe"

	"github.com/cosmos72/gomacro/imports"

	"lockstep/kernels/internal/cell"
)

var errNoCu = errors.New("this kernel was built without " + cell.GPUPackage + " (to use it: " + cell.GPUBuild + ")")

// Types with the same names as in gorgonia.org/cu.
type (
	CUContext       struct{}
	Device          int
	DeviceAttribute int
	DevicePtr       uintptr
	Event           struct{}
	EventFlags      byte
	Function        struct{}
	Module          struct{}
	Stream          struct{}
)

// Constants with the same names and values as in gorgonia.org/cu.
const (
	MultiprocessorCount DeviceAttribute = 16
	DefaultEvent        EventFlags      = 0
)

// NoStream is the default stream.
var NoStream = Stream{}

func NumDevices() (int, error)                                  { return 0, errNoCu }
func Version() int                                              { return 0 }
func GetDevice(int) (Device, error)                             { return 0, errNoCu }
func SetCurrentContext(CUContext) error                         { return errNoCu }
func MemInfo() (free, total int64, err error)                   { return 0, 0, errNoCu }
func MemAlloc(int64) (DevicePtr, error)                         { return 0, errNoCu }
func MemFree(DevicePtr) error                                   { return errNoCu }
func MemcpyHtoD(DevicePtr, unsafe.Pointer, int64) error         { return errNoCu }
func MemcpyDtoH(unsafe.Pointer, DevicePtr, int64) error         { return errNoCu }
func LoadData(string) (Module, error)                           { return Module{}, errNoCu }
func MakeEvent(EventFlags) (Event, error)                       { return Event{}, errNoCu }
func DestroyEvent(*Event) error                                 { return errNoCu }
func (Device) Name() (string, error)                            { return "", errNoCu }
func (Device) Attribute(DeviceAttribute) (int, error)           { return 0, errNoCu }
func (Device) ComputeCapability() (major, minor int, err error) { return 0, 0, errNoCu }
func (Device) RetainPrimaryCtx() (CUContext, error)             { return CUContext{}, errNoCu }
func (Module) Function(string) (Function, error)                { return Function{}, errNoCu }
func (Event) Record(Stream) error                               { return errNoCu }
func (Event) Elapsed(Event) (milliseconds float64, err error)   { return 0, errNoCu }
func (Function) Launch(gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes int, s Stream, parameters []unsafe.Pointer) error {
	return errNoCu
}

// Register makes this package importable as gorgonia.org/cu, unless the kernel has the original.
func Register() {
	if _, has := imports.Packages[cell.GPUPackage]; has {
		return
	}
	imports.Packages[cell.GPUPackage] = imports.Package{
		Name: "cu",
		Binds: map[string]reflect.Value{
			"DefaultEvent": reflect.ValueOf(DefaultEvent), "MultiprocessorCount": reflect.ValueOf(MultiprocessorCount),
			"NoStream":   reflect.ValueOf(&NoStream).Elem(),
			"NumDevices": reflect.ValueOf(NumDevices), "Version": reflect.ValueOf(Version), "GetDevice": reflect.ValueOf(GetDevice),
			"SetCurrentContext": reflect.ValueOf(SetCurrentContext), "MemInfo": reflect.ValueOf(MemInfo),
			"MemAlloc": reflect.ValueOf(MemAlloc), "MemFree": reflect.ValueOf(MemFree),
			"MemcpyHtoD": reflect.ValueOf(MemcpyHtoD), "MemcpyDtoH": reflect.ValueOf(MemcpyDtoH), "LoadData": reflect.ValueOf(LoadData),
			"MakeEvent": reflect.ValueOf(MakeEvent), "DestroyEvent": reflect.ValueOf(DestroyEvent),
		},
		Types: map[string]reflect.Type{
			"CUContext": reflect.TypeFor[CUContext](), "Device": reflect.TypeFor[Device](), "DeviceAttribute": reflect.TypeFor[DeviceAttribute](),
			"DevicePtr": reflect.TypeFor[DevicePtr](), "Event": reflect.TypeFor[Event](), "EventFlags": reflect.TypeFor[EventFlags](),
			"Function": reflect.TypeFor[Function](), "Module": reflect.TypeFor[Module](), "Stream": reflect.TypeFor[Stream](),
		},
		Proxies: map[string]reflect.Type{}, Untypeds: map[string]string{},
	}
}
