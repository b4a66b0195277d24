package elfsym

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// samples are functions that differ in their first instruction.
var samples = []struct{ name, body string }{
	{"nop5", ".byte 0x0f,0x1f,0x44,0,0; ret"},
	{"nop1", "nop; ret"},
	{"nop2", ".byte 0x66,0x90; ret"},
	{"nop3", ".byte 0x0f,0x1f,0; ret"},
	{"nop4", ".byte 0x0f,0x1f,0x40,0; ret"},
	{"nop5_indexed", ".byte 0x0f,0x1f,0x44,0x20,0; ret"},
	{"nop6", ".byte 0x66,0x0f,0x1f,0x44,0,0; ret"},
	{"nop7", ".byte 0x0f,0x1f,0x80,0,0,0,0; ret"},
	{"nop8", ".byte 0x0f,0x1f,0x84,0,0,0,0,0; ret"},
	{"nop9", ".byte 0x66,0x0f,0x1f,0x84,0,0,0,0,0; ret"},
	{"push_rbp", "push %rbp; pop %rbp; ret"},
	{"push_r15", "push %r15; pop %r15; ret"},
	{"push_constant", "push $1; pop %rax; ret"},
	{"push_memory", "push (%rsp); pop %rax; ret"},
	{"jmp_short", "jmp 1f; 1: ret"},
	{"jmp_near", ".byte 0xe9,0,0,0,0; ret"},
	{"je_short", "je 1f; 1: ret"},
	{"je_near", ".byte 0x0f,0x84,0,0,0,0; ret"},
	{"call", "call 1f; ret; 1: ret"},
	{"endbr64", "endbr64; ret"},
	{"cmp", "cmpl $1, table(%rip); ret"},
	{"mov", "mov %rsp, %rax; ret"},
	{"lea", "lea table(%rip), %rax; ret"},
	{"sub_rsp", "sub $8, %rsp; add $8, %rsp; ret"},
	{"ret", "ret"},
}

// sampleProgram calls the function whose index it reads, then answers.
func sampleProgram() string {
	var s strings.Builder
	s.WriteString("#include <unistd.h>\nextern void (*const table[])(void);\nint main(void) { unsigned char i;\n" +
		"while (read(0, &i, 1) == 1) { table[i](); if (write(1, &i, 1) != 1) return 1; } return 0; }\n__asm__(\".text\\n\"\n")
	for _, f := range samples {
		fmt.Fprintf(&s, "\".globl sample_%[1]s\\n.type sample_%[1]s,@function\\nsample_%[1]s: %[2]s\\n.size sample_%[1]s, . - sample_%[1]s\\n\"\n", f.name, f.body)
	}
	s.WriteString("\".section .rodata\\n.globl table\\ntable:\\n\"\n")
	for _, f := range samples {
		fmt.Fprintf(&s, "\".quad sample_%s\\n\"\n", f.name)
	}
	s.WriteString("\".text\\n\");\n")
	return s.String()
}

// The kernel executes instructions that it does not emulate from a page of its own, which then
// shows in the process's mappings. So what it does can be seen, without measuring time.
func TestClassesAreTheKernels(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("attaching a uprobe takes root")
	}
	path := build(t, "samples.c", sampleProgram(), "-no-pie")
	f := open(t, path)
	if f.Machine() != elf.EM_X86_64 {
		t.Skip("the samples are x86-64 instructions")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	exe, err := link.OpenExecutable(path)
	if err != nil {
		t.Fatal(err)
	}
	kernel := Kernel{}
	for i, sample := range samples {
		found, err := f.StaticSymbols(func(name string) bool { return name == "sample_"+sample.name }, 1<<20)
		if err != nil || len(found) != 1 {
			t.Fatalf("sample %q: %v, %v", sample.name, found, err)
		}
		stepped := isStepped(t, path, exe, prog, i, found[0].Offset)
		if sample.name == "nop5" {
			kernel.LongNops = !stepped // the first sample tells which kernel this is
		}
		p, err := f.Place(found[0], kernel)
		if err != nil {
			t.Fatal(err)
		}
		if sample.name == "nop5" {
			// Emulated or not, it must not be probed.
			if p.Skip != 5 {
				t.Errorf("nop5: Place says +%d %v", p.Skip, p.Class)
			}
			continue
		}
		if atEntry := p.Skip == 0 && p.Class != Stepped; atEntry == stepped {
			t.Errorf("%s: the kernel steps: %v, but Place says +%d %v", sample.name, stepped, p.Skip, p.Class)
		}
	}
	t.Logf("%+v", kernel)
}

// isStepped runs one sample under a probe in a new process.
func isStepped(t *testing.T, path string, exe *link.Executable, prog *ebpf.Program, index int, offset uint64) bool {
	t.Helper()
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("sample %q: %v", samples[index].name, err)
		}
	}()
	probe, err := exe.Uprobe("", prog, &link.UprobeOptions{Address: offset, PID: cmd.Process.Pid})
	if err != nil {
		t.Fatalf("sample %q: %v", samples[index].name, err)
	}
	defer probe.Close()
	call := []byte{byte(index)}
	if _, err := in.Write(call); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(call); err != nil {
		t.Fatalf("sample %q did not return: %v", samples[index].name, err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), "[uprobes]")
}
