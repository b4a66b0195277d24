package elfsym

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// build compiles C (or, with the name's suffix .S, assembly) with gcc and returns the result's path.
func build(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	args := append([]string{"-O1", "-o", out, src}, flags...)
	if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %q: %v\n%s", args, err, b)
	}
	return out
}

// open opens an ELF file until the end of the test.
func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(f, st.Size())
	if err != nil {
		t.Fatalf("Open(%q): %v", path, err)
	}
	return e
}

func openBytes(b []byte) (*File, error) {
	return Open(bytes.NewReader(b), int64(len(b)))
}

// zoo has one of each kind of symbol.
const zoo = `
	.text
	.globl typed, untyped, sizeless, alias_one, alias_two, exported_abs
	.type typed, @function
typed:	push %rbp
	pop %rbp
	ret
	.size typed, . - typed
untyped:
	nop
	ret
	.size untyped, 2
	.type sizeless, @function
sizeless:
	ret
	.type alias_one, @function
	.type alias_two, @function
alias_one:
alias_two:
	.nops 5, 5
	ret
	.size alias_one, 6
	.size alias_two, 6
	.type private, @function
private:
	int3
label:
	ret
	.size private, 2

	.globl chooser
	.type chooser, @gnu_indirect_function
chooser:
	lea private(%rip), %rax
	ret
	.size chooser, . - chooser

	.globl versioned_old, versioned_new
	.type versioned_old, @function
	.type versioned_new, @function
versioned_old:
	ret
	.size versioned_old, 1
	.symver versioned_old, versioned@ZOO_1
versioned_new:
	nop
	ret
	.size versioned_new, 2
	.symver versioned_new, versioned@@ZOO_2

	.set exported_abs, 0x1234

	.data
	.globl object
	.type object, @object
object:	.quad 0x1122334455667788
	.size object, 8

	.bss
	.globl zeroed
	.type zeroed, @object
zeroed:	.skip 16
	.size zeroed, 16

	.section .tbss,"awT",@nobits
	.globl per_thread
	.type per_thread, @object
	.skip 8
per_thread: .skip 8
	.size per_thread, 8
	.section .note.GNU-stack,"",@progbits
`

const zooVersions = `ZOO_1 { global: *; }; ZOO_2 { global: versioned; } ZOO_1;`

func buildZoo(t testing.TB, flags ...string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "versions")
	if err := os.WriteFile(script, []byte(zooVersions), 0o644); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{
		"-shared", "-nostdlib", "-Wl,--build-id=0x0123456789abcdef",
		"-Wl,-soname,libzoo.so.1", "-Wl,--version-script=" + script,
	}, flags...)
	return build(t, "zoo.S", zoo, flags...)
}
