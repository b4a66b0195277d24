package report

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"stageprof/correlate"
	"stageprof/recording/recordingtest"
)

// section returns the rows of the table whose titles match.
func section(t *testing.T, text, titles string) []string {
	t.Helper()
	at := regexp.MustCompile("(?m)^" + titles + ".*\n").FindStringIndex(text)
	if at == nil {
		t.Fatalf("no table %q in:\n%s", titles, text)
	}
	body, _, _ := strings.Cut(text[at[1]:], "\n\n")
	return strings.Split(body, "\n")
}

// threadParts are the titles of the table of what threads did.
const threadParts = "THREAD +TID +ROLE"

var percentage = regexp.MustCompile(`(\d+\.\d)%`)

// Every row of both tables of parts is 100.0 %, also as it is printed.
func TestPartsSumTo100Percent(t *testing.T) {
	text := textOf(t, recordingtest.Pipeline(), TextOptions{Full: true})
	rows := 0
	for _, title := range []string{"WALL TIME OF", threadParts} {
		for _, line := range section(t, text, title) {
			var sum float64
			for _, m := range percentage.FindAllStringSubmatch(line, -1) {
				share, err := strconv.ParseFloat(m[1], 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += share
			}
			if sum == 0 {
				continue // a note, or a stage that was not seen
			}
			rows++
			if sum < 99.95 || sum > 100.05 {
				t.Errorf("%.1f%% in %q", sum, line)
			}
		}
	}
	if rows != 21 {
		t.Errorf("%d rows, want those of 12 stages, 2 without the stages inside, time outside, and 6 threads", rows)
	}
}

func TestPerMille(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for range 1000 {
		parts := make([]uint64, 1+rng.IntN(9))
		var whole uint64
		for i := range parts {
			parts[i] = rng.Uint64() >> (4 + rng.IntN(60))
			whole += parts[i]
		}
		if whole == 0 {
			continue
		}
		sum := 0
		for i, share := range perMille(parts, whole) {
			sum += share
			if exact := 1000 * float64(parts[i]) / float64(whole); float64(share) < exact-1 || float64(share) > exact+1 {
				t.Errorf("%d of %d is %d per mille", parts[i], whole, share)
			}
		}
		if sum != 1000 {
			t.Errorf("%v sum to %d per mille", parts, sum)
		}
	}
	if got := perMille([]uint64{0, 0}, 0); got[0]+got[1] != 0 {
		t.Errorf("parts of nothing are %v", got)
	}
}

// Each kind of part is in exactly one column, or rows would not sum to 100 %.
func TestPartColumnsHoldEveryKindOnce(t *testing.T) {
	for _, k := range correlate.PartKinds {
		n := 0
		for _, c := range allPartColumns {
			if c.holds(k) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is in %d columns", k, n)
		}
	}
}

// A recording that does not say what wall times consist of shows no zeros.
func TestTextWithoutParts(t *testing.T) {
	text := textOf(t, noPython(), TextOptions{Full: true})
	if !strings.Contains(text, "The recording has no parts of wall time") || strings.Contains(text, "GIL WAIT") {
		t.Errorf("the report does not say that there are no parts:\n%s", text)
	}
}

// Threads without any stage have a row and, where their name says it, a role.
func TestTextThreadsWithoutStages(t *testing.T) {
	rows := strings.Join(section(t, textOf(t, recordingtest.Pipeline(), TextOptions{Full: true}), threadParts), "\n")
	for _, want := range []string{`(?m)^pt_autograd_0  4260  autograd +30\.0 s`, `(?m)^python3 +4254 +none +30\.0 s`} {
		if !regexp.MustCompile(want).MatchString(rows) {
			t.Errorf("no row %s in:\n%s", want, rows)
		}
	}
}
