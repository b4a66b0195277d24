package agent_test

import (
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// Launches are made for the entry points of cuDNN that compute, and for others
// as well, which are no regions. The time in them is split from the stage's.
func TestRegionsOfCuDNN(t *testing.T) {
	regions := []string{
		"cudnnBackendExecute", "cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData",
		"cudnnConvolutionBackwardFilter", "cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8",
		"cudnnMultiHeadAttnForward", "cudnnCTCLoss", "cudnnCTCLoss_v8",
	}
	others := []string{"cudnnBackendFinalize", "cudnnAddTensor", "cudnnConvolutionBackwardBias"}
	p := startPuppet(t)
	p.order("main library "+simtest.Build(t, "sim/testers/libcudnn.so.9"), "main start w")
	baseline := p.truthSoFar().Counts()
	r := record(t, agent.Config{PID: p.PID, RegionSets: []string{"cudnn"}})
	calls, times := map[string]uint64{"step | ": uint64(len(others))}, map[string]spanCount{}
	p.order("w begin step")
	for _, name := range regions {
		p.order("w call "+name+" 3", "w call "+name+" 0")
		calls["step | "+name], times["step | "+name] = 3, spanCount{2, 0}
	}
	for _, name := range others {
		p.order("w call " + name + " 1")
	}
	p.order("w end")
	got := r.interrupt()
	expectEqual(t, got, since(baseline, p.end().Counts()))
	expectNoLosses(t, got)
	expectRegions(t, got, calls, times)
	if n := len(partsByRegion(t, got, "step")); n != len(regions)+1 {
		t.Errorf("the stage is split into %d regions, want %d and the rest", n, len(regions))
	}
}
