package target

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// mappingOf returns the target's first mapping of that path.
func mappingOf(t testing.TB, p *Process, path string) Mapping {
	t.Helper()
	ms, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ms, func(m Mapping) bool { return m.Path == path })
	if i < 0 {
		t.Fatalf("no mapping of %q in %d", path, len(ms))
	}
	return ms[i]
}

func TestParseMaps(t *testing.T) {
	dev := unix.Mkdev(0xfe, 0x01)
	for _, tc := range []struct {
		name, line string
		want       Mapping
	}{
		{
			"code", "7f0000001000-7f0000002000 r-xp 00001000 fe:01 12345                      /lib/libcuda.so.1",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Offset: 0x1000, Read: true, Exec: true, Private: true, Dev: dev, Inode: 12345, Path: "/lib/libcuda.so.1"},
		},
		{
			"shared", "00400000-00401000 rw-s 00000000 fe:01 7 /dev/shm/x",
			Mapping{Start: 0x400000, End: 0x401000, Read: true, Write: true, Dev: dev, Inode: 7, Path: "/dev/shm/x"},
		},
		{
			"anonymous", "7f0000001000-7f0000002000 ---p 00000000 00:00 0 ",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Private: true},
		},
		{
			"anonymous, trimmed", "7f0000001000-7f0000002000 ---p 00000000 00:00 0",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Private: true},
		},
		{
			"special", "7f0000001000-7f0000002000 r--p 00000000 00:00 0                          [anon:a b]",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Read: true, Private: true, Path: "[anon:a b]"},
		},
		{
			"deleted", "7f0000001000-7f0000002000 r--p 00000000 fe:01 9 /tmp/a b.so (deleted)",
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Read: true, Private: true, Dev: dev, Inode: 9, Path: "/tmp/a b.so", Deleted: true},
		},
		{
			"line break in the path", `7f0000001000-7f0000002000 r--p 00000000 fe:01 9 /tmp/a\012b`,
			Mapping{Start: 0x7f0000001000, End: 0x7f0000002000, Read: true, Private: true, Dev: dev, Inode: 9, Path: "/tmp/a\nb"},
		},
		{
			"highest addresses", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
			Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Private: true, Path: "[vsyscall]"},
		},
		{
			"largest numbers", "0000000000000000-ffffffffffffffff r--p ffffffffffffffff fff:fffff 18446744073709551615 /x",
			Mapping{End: 1<<64 - 1, Offset: 1<<64 - 1, Read: true, Private: true, Dev: unix.Mkdev(0xfff, 0xfffff), Inode: 1<<64 - 1, Path: "/x"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseMaps(strings.NewReader(tc.line + "\n"))
			if err != nil || len(got) != 1 || got[0] != tc.want {
				t.Errorf("parseMaps(%q) = %+v, %v, want %+v", tc.line, got, err, tc.want)
			}
		})
	}
}

func TestParseMapsRefuses(t *testing.T) {
	for _, text := range []string{
		"\n", "rubbish\n", "1-2\n", "1-2 r-xp\n", "1-2 r-xp 0\n", "1-2 r-xp 0 0:0\n", "2-1 r-xp 0 0:0 0\n", "1-1 r-xp 0 0:0 0\n",
		"10000000000000000-20000000000000000 r-xp 0 0:0 0\n", "-2 r-xp 0 0:0 0\n", "1-2 r-x 0 0:0 0\n", "1-2 r-xpp 0 0:0 0\n",
		"1-2 r-xp 0 0:0 18446744073709551616\n", "1-2 r-xp 0 1000:0 0\n", "1-2 r-xp 0 0:100000 0\n", "1-2 r-xp 0 0:0 0a\n",
		"1-2 r-xp 0 0:0 0 /x", strings.Repeat("x", mapsBuffer) + "\n",
	} {
		if got, err := parseMaps(strings.NewReader(text)); err == nil {
			t.Errorf("parseMaps(%q) = %+v", clip([]byte(text)), got)
		}
	}
}

// However the kernel cuts the text, the mappings are the same.
func TestParseMapsInPieces(t *testing.T) {
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "%x-%x r-xp %08x fe:01 %d                    /some/path/number/%d\n", i*8192, i*8192+4096, i, i+1, i%100)
	}
	whole, err := parseMaps(strings.NewReader(text.String()))
	if err != nil || len(whole) != 3000 {
		t.Fatalf("%d mappings, %v", len(whole), err)
	}
	for name, r := range map[string]io.Reader{
		"bytes":    iotest.OneByteReader(strings.NewReader(text.String())),
		"halves":   iotest.HalfReader(strings.NewReader(text.String())),
		"data+EOF": iotest.DataErrReader(strings.NewReader(text.String())),
	} {
		if got, err := parseMaps(r); err != nil || !slices.Equal(got, whole) {
			t.Errorf("%s: %d mappings, %v", name, len(got), err)
		}
	}
}

func TestMappingsOfProcess(t *testing.T) {
	x := start(t, nil)
	p := x.open()
	ms, err := p.Mappings()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", x.pid))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n != len(ms) {
		t.Errorf("%d mappings of %d", len(ms), n)
	}
	var st unix.Stat_t
	if err := unix.Stat(testerProgram(t), &st); err != nil {
		t.Fatal(err)
	}
	if m := mappingOf(t, p, testerProgram(t)); m.Dev != st.Dev || m.Inode != st.Ino || m.Offset != 0 || m.Deleted {
		t.Errorf("the program's mapping %+v, want device %d inode %d", m, st.Dev, st.Ino)
	}
}

// 20 000 mappings are read whole while the target maps and unmaps as fast as it can.
func TestCaseC27(t *testing.T) {
	const wanted = 20_000
	x := start(t, nil)
	x.do("mappings %d", wanted)
	p := x.open()
	for range 20 {
		ms, err := p.Mappings()
		if err != nil {
			t.Fatal(err)
		}
		anonymous, end := 0, uint64(0)
		for _, m := range ms {
			if m.Start < end {
				t.Fatalf("mapping %#x-%#x overlaps one that ends at %#x", m.Start, m.End, end)
			}
			end = m.End
			if m.Path == "" && m.End-m.Start == 4096 {
				anonymous++
			}
		}
		if anonymous < wanted-10 { // some may have been merged with a neighbour
			t.Fatalf("%d of %d mappings", anonymous, wanted)
		}
		if !slices.ContainsFunc(ms, func(m Mapping) bool { return m.Exec && m.Path == testerProgram(t) }) {
			t.Fatal("the program's code is missing")
		}
	}
}

func BenchmarkMappings20000(b *testing.B) {
	x := start(b, nil)
	x.do("mappings 20000")
	p := x.open()
	for b.Loop() {
		if _, err := p.Mappings(); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("7f0000001000-7f0000002000 r-xp 00001000 fe:01 12345                      /lib/libcuda.so.1\n"))
	f.Add([]byte("00400000-00401000 rw-s 00000000 00:00 0 \n00402000-00403000 r--p 0 08:01 9 /a\\012b (deleted)\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"))
	f.Add([]byte("1-2 r-xp 0 0:0 18446744073709551616\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := parseMaps(bytes.NewReader(b))
		if err != nil {
			return
		}
		if len(ms) != bytes.Count(b, []byte("\n")) {
			t.Fatalf("%d mappings in %d lines", len(ms), bytes.Count(b, []byte("\n")))
		}
		for _, m := range ms {
			checkRoundTrip(t, m)
		}
		groupFiles(ms)
	})
}

// checkRoundTrip writes the mapping as the kernel does and reads it back.
func checkRoundTrip(t *testing.T, m Mapping) {
	t.Helper()
	perms := []byte("---s")
	for i, set := range []bool{m.Read, m.Write, m.Exec, m.Private} {
		if set {
			perms[i] = "rwxp"[i]
		}
	}
	path := strings.ReplaceAll(m.Path, "\n", `\012`)
	if m.Deleted {
		path += deletedSuffix
	}
	line := fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %s %s\n", m.Start, m.End, perms, m.Offset,
		unix.Major(m.Dev), unix.Minor(m.Dev), strconv.FormatUint(m.Inode, 10), path)
	again, err := parseMaps(strings.NewReader(line))
	if err != nil || len(again) != 1 || again[0] != m {
		t.Fatalf("%+v written as %q is read as %+v, %v", m, line, again, err)
	}
}
