package agent

// Monotonic is the clock of everything that the kernel side notes.
var Monotonic = monotonic

// SetPeekedUntil makes the kernel side believe in a snapshot of that moment.
func (s *Session) SetPeekedUntil(moment uint64) error { return s.objects.PeekedUntil.Set(moment) }
