package recording

import (
	"fmt"
	"regexp"
)

// warnings are those of several recordings. What differs in nothing but numbers is
// one warning, which is told with the numbers of the latest.
type warnings struct {
	kinds table[warningKey]
	list  []warned
}

type warningKey struct {
	text string // without its numbers
	nth  int    // of the same Recording's warnings that are alike: of two devices, say
}

type warned struct {
	text   string
	times  int
	differ bool
}

// quantity is a number, or several as in "1m2.5s", with the unit. What stands inside a
// word, as in "libcudart.so.12", is part of a name, and so is a device's.
var quantity = regexp.MustCompile(`(GPU \d+)|(^|[\s(])(\d[\d.,]*( ?(ns|µs|ms|min|s|m|h|[KMG]iB|B))?)+`)

// add takes up the warnings of one more recording.
func (w *warnings) add(texts []string) {
	alike := map[string]int{}
	for _, text := range texts {
		key := warningKey{text: quantity.ReplaceAllString(text, "$1$2#")}
		key.nth = alike[key.text]
		alike[key.text]++
		id, first := w.kinds.number(key)
		if first {
			w.list = append(w.list, warned{text: text, times: 1})
			continue
		}
		is := &w.list[id]
		is.differ = is.differ || is.text != text
		is.text = text
		is.times++
	}
}

// texts are in the order in which they came first.
func (w *warnings) texts() []string {
	var texts []string
	for _, is := range w.list {
		if is.differ {
			is.text += fmt.Sprintf(" (the latest of %d windows with such numbers)", is.times)
		}
		texts = append(texts, is.text)
	}
	return texts
}
