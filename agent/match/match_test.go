package match

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const cells = 16384

var expressions = []string{
	"", "step", "^step$", "^(step|forward)", "forward$|^back", "(?i)Optimizer\\.STEP", "a.c", "a.*c", "[^a-z]", "^[a-z_]+$",
	"x{3,5}", "é|ü", "^.$", "^..$", "[α-ω]+", "\\d+", "\\p{Greek}", "(a|b)*c", "^$", "a$b", "(?i)ſ", "a*?b", "(?s)^.*$", "[[:space:]]",
	"\\x{10ffff}", "[\\x{800}-\\x{ffff}]", "^(?:target|drafter)_(?:forward|backward)$", "$^", "a||b", "k(?i:K)",
}

var names = []string{
	"", "s", "step", "steps", "a step", "forward", "backward", "Optimizer.step#SGD.step", "abc", "ac", "a\nc", "aéc", "é", "ü", "éé",
	"xx", "xxx", "xxxxxx", "ab", "abababc", "αβγ", "ΑΒΓ", "12", "a b", "target_forward", "drafter_backward", "target_pack", "S", "ſ", "K", "kK",
	"\U0010ffff", "\u0800", "\uffff", "\ud7ff", "\ue000", "\x7f", "\u0080", "日本語",
}

// A table decides as Go's own matcher does.
func TestMatch(t *testing.T) {
	for _, expression := range expressions {
		table, err := Compile(expression, cells)
		if err != nil {
			t.Errorf("%q: %v", expression, err)
			continue
		}
		want := regexp.MustCompile(expression)
		for _, name := range names {
			if got := table.Match(name); got != want.MatchString(name) {
				t.Errorf("%q in %q: %v", expression, name, got)
			}
		}
	}
}

// Bytes that are no UTF-8, such as those of a name that was cut, keep nothing
// beside them from matching.
func TestBrokenText(t *testing.T) {
	for expression, name := range map[string]string{"^step": "step\xc3", "step$": "\xc3step", "a": "\xffa\xff"} {
		table, err := Compile(expression, cells)
		if err != nil {
			t.Fatal(err)
		}
		if !table.Match(name) {
			t.Errorf("%q does not match %q", expression, name)
		}
	}
}

func TestRefused(t *testing.T) {
	tests := map[string]error{
		"(":                ErrSyntax,
		"(?<=a)b":          ErrSyntax,
		`\bstep\b`:         ErrUnsupported,
		`\B`:               ErrUnsupported,
		"(?m)^step":        ErrUnsupported,
		"(?m)step$":        ErrUnsupported,
		"(a|b)*a(a|b){12}": ErrTooLarge,
		`\pL{100}`:         ErrTooLarge,
		"^(?:" + strings.Repeat("drafter_attention_block|", 60) + "optimizer)$": nil,
	}
	for expression, want := range tests {
		if _, err := Compile(expression, cells); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", expression, err, want)
		}
	}
}

// Every character is in exactly the encodings of ranges that contain it.
func TestEncodings(t *testing.T) {
	for _, pair := range [][2]rune{{0, unicode.MaxRune}, {0x41, 0x41}, {0x7f, 0x80}, {0x3ff, 0x12345}, {0xd000, 0xe123}, {0x10000, 0x10ffff}, {0x801, 0xffe}} {
		sequences := encodings(pair[0], pair[1])
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			matches := 0
			for _, s := range sequences {
				if covers(s, r) {
					matches++
				}
			}
			if want := pair[0] <= r && r <= pair[1]; (matches == 1) != want || matches > 1 {
				t.Fatalf("%U matches %d encodings of %U", r, matches, pair)
			}
		}
	}
}

func covers(sequence []byteRange, r rune) bool {
	var b [utf8.UTFMax]byte
	if utf8.EncodeRune(b[:], r) != len(sequence) {
		return false
	}
	for i, s := range sequence {
		if b[i] < s.lo || b[i] > s.hi {
			return false
		}
	}
	return true
}

// Whatever can be compiled decides as Go's matcher does, and within the bound.
func FuzzMatch(f *testing.F) {
	for i, expression := range expressions {
		f.Add(expression, names[i%len(names)])
	}
	f.Fuzz(func(t *testing.T, expression, name string) {
		if len(expression) > 50 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return
		}
		table, err := Compile(expression, cells)
		if err != nil {
			return
		}
		if len(table.Next) > cells {
			t.Errorf("%q has %d cells", expression, len(table.Next))
		}
		if got := table.Match(name); got != regexp.MustCompile(expression).MatchString(name) {
			t.Errorf("%q in %q: %v", expression, name, got)
		}
	})
}
