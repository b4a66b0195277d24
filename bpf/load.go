package bpf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"
)

// LoadSelected loads the maps and, of the programs, those that are named: the
// kernel's verifier spends some milliseconds on each. The others are nil in
// objects, and gone from spec. On an error nothing stays loaded.
func LoadSelected(spec *ebpf.CollectionSpec, objects *ProbeObjects, names ...string) error {
	for _, name := range names {
		if spec.Programs[name] == nil {
			return fmt.Errorf("there is no program %q", name)
		}
	}
	for name := range spec.Programs {
		if !slices.Contains(names, name) {
			delete(spec.Programs, name)
		}
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer collection.Close() // of what is not taken from it here
	if err := errors.Join(collection.Assign(&objects.ProbeMaps), collection.Assign(&objects.ProbeVariables)); err != nil {
		err = errors.Join(err, objects.Close())
		*objects = ProbeObjects{}
		return err
	}
	// Assign would miss the programs that are not wanted.
	programs := reflect.ValueOf(&objects.ProbePrograms).Elem()
	for i := range programs.NumField() {
		name := programs.Type().Field(i).Tag.Get("ebpf")
		if program := collection.DetachProgram(name); program != nil {
			programs.Field(i).Set(reflect.ValueOf(program))
		}
	}
	return nil
}
