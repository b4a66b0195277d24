package target

import (
	"os"
	"testing"
)

func TestParseStatus(t *testing.T) {
	const text = "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4242\nNgid:\t0\nPid:\t4242\n" +
		"Uid:\t1000\t1001\t1002\t1003\nNSpid:\t4242\t17\t1\nThreads:\t64\nSeccomp:\t2\nSeccomp_filters:\t1\n"
	got, err := parseStatus([]byte(text))
	if want := (status{tgid: 4242, nspid: 1, uid: 1001, threads: 64, seccomp: 2}); err != nil || got != want {
		t.Errorf("parseStatus = %+v, %v, want %+v", got, err, want)
	}
	got, err = parseStatus([]byte("Tgid: 5\n"))
	if want := (status{tgid: 5, nspid: 5, seccomp: -1}); err != nil || got != want {
		t.Errorf("parseStatus of an old kernel = %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "Name:\tx\n", "Tgid:\n", "Tgid:\tx\n", "Tgid:\t0\n", "Tgid:\t5\nNSpid:\ty\n"} {
		if got, err := parseStatus([]byte(text)); err == nil {
			t.Errorf("parseStatus(%q) = %+v", text, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 0 -1 2097216 8 9 10 11 12 13 14 15 16 17 18 19 987654 21 22 23 24 25 140700000000000 27 28\n"
	got, err := parseStat([]byte("17 (a) R (b) S" + rest))
	want := statLine{comm: "a) R (b", state: 'S', parent: 1, flags: 2097216, startTicks: 987654, startStack: 140700000000000}
	if err != nil || got != want {
		t.Errorf("parseStat = %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "17", "17 (x", "17 x) S" + rest, "17 (x)", "17 (x) S 1 2", "17 (x) SS" + rest, "17 (x) \x00" + rest, "17 (x) S 1 2 3 0 -1 x" + rest} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("parseStat(%q) = %+v", text, got)
		}
	}
}

func FuzzStatus(f *testing.F) {
	for _, name := range []string{"/proc/self/status", "/proc/self/stat", "/proc/2/status", "/proc/2/stat"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("Tgid:\t1\nNSpid:\t1\t2\nUid:\t1\nSeccomp:\t-1\nThreads:\t99999999999999999999\n"))
	f.Add([]byte("1 (((()))) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStatus(b); err == nil && (s.tgid <= 0 || s.nspid <= 0) {
			t.Fatalf("accepted %+v", s)
		}
		if s, err := parseStat(b); err == nil && s.state == 0 {
			t.Fatalf("accepted %+v", s)
		}
	})
}
