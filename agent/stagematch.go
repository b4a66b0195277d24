package agent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"stageprof/agent/match"
	"stageprof/bpf"
	"stageprof/recording"
)

// compileStageMatch makes the table of Config.StageMatch, nil for all stages.
func compileStageMatch(expression string) (*match.Table, error) {
	return compileMatch("stages", expression)
}

func compileMatch(what, expression string) (*match.Table, error) {
	if expression == "" {
		return nil, nil
	}
	table, err := match.Compile(expression, len(bpf.ProbeNameMatch{}.Next))
	if err != nil {
		return nil, fmt.Errorf("%w: choosing %s by %q: %w", ErrUsage, what, expression, err)
	}
	return table, nil
}

// prepareStageMatch switches the choice of stages on, if there is one, before
// the programs are loaded. Without it they are as if they knew of none.
func (s *Session) prepareStageMatch(spec *ebpf.CollectionSpec) (err error) {
	if s.stageMatch, err = compileStageMatch(s.config.StageMatch); err != nil {
		return err
	}
	if s.stageMatch == nil {
		spec.Maps["hidden_names"].MaxEntries = 1
		spec.Maps["hidden_texts"].MaxEntries = 1
		return nil
	}
	if err := spec.Variables["matching"].Set(uint32(1)); err != nil {
		return fmt.Errorf("setting the choice of stages: %w", err)
	}
	return nil
}

// setMatches hands the tables over to the programs.
func (s *Session) setMatches() error {
	return errors.Join(
		s.setMatch(bpf.ProbeMatchOfMATCH_STAGES, s.stageMatch),
		s.setMatch(bpf.ProbeMatchOfMATCH_PYTHON_FUNCTIONS, s.pythonMatch),
	)
}

func (s *Session) setMatch(of bpf.ProbeMatchOf, table *match.Table) error {
	if table == nil {
		return nil
	}
	value := bpf.ProbeNameMatch{Class: table.Class, Start: table.Start, Accept: table.Accept}
	copy(value.Next[:], table.Next)
	if err := s.objects.NameMatches.Put(uint32(of), &value); err != nil {
		return fmt.Errorf("passing on which stages are wanted: %w", err)
	}
	return nil
}

// shown returns those of a slot's stages that are to be stages.
func (s *Session) shown(all []openStage) []openStage {
	if s.stageMatch == nil {
		return all
	}
	var shown []openStage
	for _, stage := range all {
		if s.stageMatch.Match(stage.name) {
			shown = append(shown, stage)
		}
	}
	return shown
}

// noMatch is the warning that the choice has left no stage, "" if it has.
func (d *drain) noMatch() string {
	isStage := func(s recording.Stage) bool { return len(d.r.Paths[s.Path].Names) > 0 }
	if d.stageMatch == nil || slices.ContainsFunc(d.r.Stages, isStage) {
		return ""
	}
	return fmt.Sprintf("no stage was seen whose name matches %q", d.config.StageMatch)
}
