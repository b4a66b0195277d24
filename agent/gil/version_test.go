package gil

import (
	"strings"
	"testing"
)

func TestVersionFromHex(t *testing.T) {
	for hex, want := range map[uint64]string{
		0x030c01f0: "3.12.1", 0x030e0af0: "3.14.10", 0x030e00c2: "3.14.0rc2", 0x030f00a1: "3.15.0a1",
		0x030d00b4: "3.13.0b4", 0x02071200 | 0xf0: "2.7.18",
	} {
		if v, ok := versionFromHex(hex); !ok || v.String() != want {
			t.Errorf("%#x is %v, %v; want %q", hex, v, ok, want)
		}
	}
	for _, hex := range []uint64{0, 0x030c0100, 0x04000000 | 0xf0, 0x1030c01f0, 0x03ff00f0, ^uint64(0)} {
		if v, ok := versionFromHex(hex); ok {
			t.Errorf("%#x is taken for %v", hex, v)
		}
	}
}

func TestVersionFromBanner(t *testing.T) {
	for text, want := range map[string]string{
		"3.10.13 (main, May  9 2026, 10:11:12) [GCC 12.2.0]":                             "3.10.13",
		"3.8.18 (default, May  9 2026, 10:11:12) \n[GCC 12.2.0]":                         "3.8.18",
		"3.9.2rc1+ (heads/3.9:1a2b3c, Jan  1 2021, 00:00:00) [Clang 14.0.0 ]":            "3.9.2rc1+",
		"3.10.13 | packaged by conda-forge | (main, Dec 23 2023, 15:36:39) [GCC 12.3.0]": "3.10.13",
		"2.7.18 (default, May  9 2026, 10:11:12) \n[GCC 12.2.0]":                         "2.7.18",
		"\x00\xff3.8.1\x003.10.13 (main, May  9 2026, 10:11:12) [GCC 12.2.0]\x00":        "3.10.13",
	} {
		if v, ok := versionIn([]byte(text)); !ok || v.String() != want {
			t.Errorf("%q is %v, %v; want %q", text, v, ok, want)
		}
	}
	for _, text := range []string{
		"", "3.10.13", "3.10.13 (main)", "1.10.13 (main, May  9 2026) [GCC]", "3.10 (main, May  9 2026) [GCC 12.2.0]",
		"3.10.13 (main\x00) [GCC 12.2.0]", "3.10.13 (" + strings.Repeat("x", 200) + ") [GCC 12.2.0]",
	} {
		if v, ok := versionIn([]byte(text)); ok {
			t.Errorf("%q is taken for %v", text, v)
		}
	}
}

func TestVersionFromFileName(t *testing.T) {
	for name, want := range map[string]string{
		"libpython3.10.so.1.0": "3.10", "python3.8": "3.8", "libpython3.7m.so": "3.7", "libpython3.13t.so.1.0": "3.13",
	} {
		if v, ok := versionFromFileName(name); !ok || v.String() != want {
			t.Errorf("%q is %v, %v; want %q", name, v, ok, want)
		}
	}
	for _, name := range []string{"", "python", "python3", "libpython3.so", "trainer", "python4.1"} {
		if v, ok := versionFromFileName(name); ok {
			t.Errorf("%q is taken for %v", name, v)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add([]byte("3.10.13 (main, May  9 2026, 10:11:12) [GCC 12.2.0]"), uint64(0x030c01f0))
	f.Add([]byte("3.99.999rc99+ | x | (\xff) \n["), ^uint64(0))
	f.Add([]byte("libpython3.10.so.1.0"), uint64(0x030e00c2))
	f.Fuzz(func(t *testing.T, text []byte, hex uint64) {
		for _, read := range []func() (version, bool){
			func() (version, bool) { return versionIn(text) },
			func() (version, bool) { return versionFromFileName(string(text)) },
			func() (version, bool) { return versionFromHex(hex) },
		} {
			v, ok := read()
			if ok && (!v.plausible() || !strings.HasPrefix(v.String(), "3.") && !strings.HasPrefix(v.String(), "2.")) {
				t.Fatalf("%q, %#x give the version %v", text, hex, v)
			}
		}
	})
}
