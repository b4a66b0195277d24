package mark

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stageprof/sim/simtest"
)

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*Config)
		want   string // part of the error, "" for none
	}{
		"as it should be":    {func(*Config) {}, ""},
		"other letters":      {func(c *Config) { c.Functions = []string{"größe.b:Ä.__call__"} }, ""},
		"undo all":           {func(c *Config) { c.Undo, c.Functions = true, nil }, ""},
		"no process":         {func(c *Config) { c.PID = 0 }, "--pid"},
		"negative process":   {func(c *Config) { c.PID = -1 }, "--pid"},
		"no function":        {func(c *Config) { c.Functions = nil }, "--function"},
		"no time":            {func(c *Config) { c.Timeout = 0 }, "--timeout 0s"},
		"no module":          {func(c *Config) { c.Functions = []string{"step"} }, "module:qualname"},
		"empty module":       {func(c *Config) { c.Functions = []string{":step"} }, "name of a module"},
		"empty name":         {func(c *Config) { c.Functions = []string{"a:"} }, "name of a function"},
		"two colons":         {func(c *Config) { c.Functions = []string{"a:b:c"} }, "name of a function"},
		"two dots":           {func(c *Config) { c.Functions = []string{"a..b:c"} }, "name of a module"},
		"an expression":      {func(c *Config) { c.Functions = []string{"a:b()"} }, "name of a function"},
		"a quote":            {func(c *Config) { c.Functions = []string{`a:b"`} }, "name of a function"},
		"a line":             {func(c *Config) { c.Functions = []string{"a:b\nc"} }, "name of a function"},
		"no UTF-8":           {func(c *Config) { c.Functions = []string{"a:b\xff"} }, "name of a function"},
		"inside of another":  {func(c *Config) { c.Functions = []string{"a:b.<locals>.c"} }, "inside of another"},
		"longer than a name": {func(c *Config) { c.Functions = []string{"a:" + strings.Repeat("b", maxName)} }, "longer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Config{PID: 1, Functions: []string{"train:Trainer.step"}, Timeout: time.Second}
			tc.change(&c)
			err := c.Validate()
			if tc.want == "" && err != nil {
				t.Errorf("the error is %v", err)
			}
			if tc.want != "" && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("the error is %v, want %q in it", err, tc.want)
			}
		})
	}
}

// What the target answers may be anything.
func TestParseAnswer(t *testing.T) {
	for text, want := range map[string]string{
		"":   "reading the script's answer",
		"[]": "reading the script's answer",
		`{"functions": [{"function": "a:b", "status": "broken"}]}`: `status "broken"`,
		"{\"error\": \"a\\u001b[31m\\nb\"}":                        "a\uFFFD[31m\uFFFDb",
	} {
		if got, err := parseAnswer([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %+v, %v", text, got, err)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"functions": [{"function": "a:b", "status": "marked", "references": 1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		outcomes, err := parseAnswer(b)
		for _, o := range outcomes {
			if err != nil || strings.ContainsAny(o.Function+o.Reason, "\n\r\x1b") {
				t.Errorf("%q gives %+v, %v", b, outcomes, err)
			}
		}
	})
}

// rootWith makes a root directory for a target that has a /tmp.
func rootWith(t *testing.T) *os.File {
	t.Helper()
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// Only the target's user can read the script.
func TestFolderOfAnotherUser(t *testing.T) {
	const uid = 65534
	root := rootWith(t)
	f, err := makeFolder(root, uid)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.putScript("pass"); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"": unix.S_IFDIR | 0o700, scriptFile: unix.S_IFREG | 0o600} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root.Name(), f.path, name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != uid || st.Mode != mode {
			t.Errorf("%q: user %d, mode %o; want %d, %o", name, st.Uid, st.Mode, uid, mode)
		}
	}
	if err := f.remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(root.Name(), "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The target's links lead nowhere else than the target itself would come.
func TestFolderThroughLinks(t *testing.T) {
	root, outside := rootWith(t), t.TempDir()
	tmp := filepath.Join(root.Name(), "tmp")
	if err := errors.Join(os.Remove(tmp), os.Symlink(outside, tmp)); err != nil {
		t.Fatal(err)
	}
	if f, err := makeFolder(root, os.Getuid()); err == nil {
		t.Errorf("made %q", f.path)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside of the root directory lie %v, %v", left, err)
	}
	if err := os.Mkdir(filepath.Join(root.Name(), "var"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root.Name(), "var", "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := makeFolder(root, os.Getuid())
	if err != nil || !strings.HasPrefix(f.path, "/var/tmp/") {
		t.Fatalf("the next place is not tried: %+v, %v", f, err)
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
}

// A request is carried out once at most: by no one after it was withdrawn, and not by a child that
// was forked while it waited, too.
func TestClaim(t *testing.T) {
	python := simtest.Python314(t)
	root := rootWith(t)
	f, err := makeFolder(root, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root.Name(), f.path)
	text, err := compose(path, Config{Functions: []string{"json:dumps"}, Undo: true})
	if err != nil {
		t.Fatal(err)
	}
	execute := func() {
		t.Helper()
		if out, err := exec.Command(python, "-c", text).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("the script ended with %v and printed\n%s", err, out)
		}
	}
	if mine, err := f.claim(); !mine || err != nil {
		t.Fatalf("claiming: %v, %v", mine, err)
	}
	execute()
	if b, ok, err := f.answer(); ok || err != nil {
		t.Errorf("a withdrawn request is answered: %q, %v", b, err)
	}
	if err := os.Remove(filepath.Join(path, claimFile)); err != nil {
		t.Fatal(err)
	}
	execute()
	b, ok, err := f.answer()
	if outcomes, parseErr := parseAnswer(b); !ok || err != nil || parseErr != nil || outcomes[0].Status != NotMarked {
		t.Errorf("the answer is %q, %v, %v", b, ok, err)
	}
	if mine, err := f.claim(); mine || err != nil {
		t.Errorf("claiming what was executed: %v, %v", mine, err)
	}
	if err := os.Remove(filepath.Join(path, answerFile)); err != nil {
		t.Fatal(err)
	}
	execute()
	if b, ok, err := f.answer(); ok || err != nil {
		t.Errorf("it was executed twice: %q, %v", b, err)
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
	execute() // the folder is gone
}

// An answer that isn't a file, or too long, is not waited for.
func TestHostileAnswers(t *testing.T) {
	f, err := makeFolder(rootWith(t), os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(dir int) error{
		"a link":      func(dir int) error { return unix.Symlinkat("/etc/passwd", dir, answerFile) },
		"a directory": func(dir int) error { return unix.Mkdirat(dir, answerFile, 0o700) },
		"long":        func(dir int) error { return putLong(f) },
	} {
		if err := put(int(f.dir.Fd())); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := f.answer(); ok || err == nil {
			t.Errorf("%s is read: %d bytes", name, len(b))
		}
		flags := 0
		if name == "a directory" {
			flags = unix.AT_REMOVEDIR
		}
		if err := unix.Unlinkat(int(f.dir.Fd()), answerFile, flags); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.remove(); err != nil {
		t.Error(err)
	}
}

func putLong(f *folder) error {
	file, err := f.create(answerFile)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(maxAnswer+1), file.Close())
}
