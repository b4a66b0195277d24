package report

import (
	"math"
	"testing"
)

func TestDuration(t *testing.T) {
	tests := map[uint64]string{
		0: "0", 1: "1 ns", 999: "999 ns", 1000: "1.00 µs", 9_994: "9.99 µs", 9_995: "10.0 µs", 99_949: "99.9 µs",
		99_950: "100 µs", 999_499: "999 µs", 999_500: "1.00 ms", 21_300_000_000: "21.3 s", 599_000_000_000: "599 s",
		599_600_000_000: "9.99 min", 36_000_000_000_000: "10.0 h", math.MaxUint64: "5124096 h",
	}
	for ns, want := range tests {
		if got := duration(ns); got != want {
			t.Errorf("duration(%d) = %q, want %q", ns, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	tests := map[uint64]string{
		0: "0", 999: "999 B", 1000: "0.98 KiB", 1 << 10: "1.00 KiB", 64 << 20: "64.0 MiB", 80 << 30: "80.0 GiB",
		1<<20 - 1: "1.00 MiB", math.MaxUint64: "16777216 TiB",
	}
	for n, want := range tests {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	tests := map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", math.MaxUint64: "18,446,744,073,709,551,615"}
	for n, want := range tests {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	tests := map[float64]string{0: "0%", 0.0001: "<0.1%", 0.001: "0.1%", 0.0994: "9.9%", 0.0996: "10%", 0.5: "50%", 1: "100%", 1.23: "123%"}
	for share, want := range tests {
		if got := percent(share); got != want {
			t.Errorf("percent(%v) = %q, want %q", share, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	tests := map[string]string{
		"forward":      "forward",
		"größe θ 前 🚀":  "größe θ 前 🚀",
		"a\nb\tc":      `a\x0ab\x09c`,
		"\x1b[31m":     `\x1b[31m`,
		"\x7f":         `\x7f`,
		"\u0085":       `\u0085`,
		"\u202eevil":   `\u202eevil`,
		"\u2028":       `\u2028`,
		"\xff\xfe":     `\xff\xfe`,
		"a\u0301":      "a\u0301",
		"\ufffd stays": "\ufffd stays",
	}
	for s, want := range tests {
		if got := printable(s); got != want {
			t.Errorf("printable(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestCells(t *testing.T) {
	tests := map[string]int{
		"": 0, "forward": 7, "größe": 5, "e\u0301te\u0301": 3, "前向传播": 8, "🚀": 2, "한국어": 6, "ｆｕｌｌ": 8, "×·…µ": 4,
		"a\u200bb": 2, "⏰": 2, "ไทย": 3,
	}
	for s, want := range tests {
		if got := cells(s); got != want {
			t.Errorf("cells(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestShortened(t *testing.T) {
	tests := []struct {
		s    string
		n    int
		want string
	}{
		{"forward", 7, "forward"},
		{"forward", 6, "for…rd"},
		{"forward", 2, "f…"},
		{"forward", 1, "…"},
		{"forward", 0, ""},
		{"前向传播计算", 7, "前…算"},
		{"前向传播计算", 8, "前向…算"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"},
	}
	for _, tt := range tests {
		got := shortened(tt.s, tt.n)
		if got != tt.want || cells(got) > tt.n {
			t.Errorf("shortened(%q, %d) = %q, want %q", tt.s, tt.n, got, tt.want)
		}
	}
}
