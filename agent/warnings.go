package agent

import (
	"fmt"
	"slices"
)

// mostWarnings bounds what can come up anew at every look, or with every library.
const mostWarnings = 100

// warnOnce keeps a complaint for the Recording, unless it is known already. All
// complaints go through here.
func (s *Session) warnOnce(text string) {
	switch {
	case slices.Contains(s.warnings, text):
	case len(s.warnings) < mostWarnings:
		s.warnings = append(s.warnings, text)
	case len(s.warnings) == mostWarnings:
		s.warnings = append(s.warnings, fmt.Sprintf("there was more to complain of than these %d warnings", mostWarnings))
	}
}
