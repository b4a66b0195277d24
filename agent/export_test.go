package agent

// Monotonic is the clock of everything that the kernel side notes.
var Monotonic = monotonic

// SetPeekedUntil makes the kernel side believe in a snapshot of that moment.
func (s *Session) SetPeekedUntil(moment uint64) error { return s.objects.PeekedUntil.Set(moment) }

// BreakDriverEntry makes the kernel refuse to probe any further driver's entries.
func (s *Session) BreakDriverEntry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.DriverEntry = s.objects.OnNew // of a type that can't be put there
}
