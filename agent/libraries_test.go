package agent_test

import (
	"testing"

	"stageprof/agent"
	"stageprof/sim/simtest"
)

// Launches are made for the entry points of cuDNN and NCCL that compute, and for
// others as well, which are no regions. The time in them is split from the stage's.
func TestRegionsOfLibraries(t *testing.T) {
	for _, test := range []struct {
		set, library    string
		regions, others []string
	}{
		{"cudnn", "libcudnn.so.9", []string{
			"cudnnBackendExecute", "cudnnConvolutionForward", "cudnnConvolutionBiasActivationForward", "cudnnConvolutionBackwardData",
			"cudnnConvolutionBackwardFilter", "cudnnRNNForward", "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8",
			"cudnnMultiHeadAttnForward", "cudnnCTCLoss", "cudnnCTCLoss_v8",
		}, []string{"cudnnBackendFinalize", "cudnnAddTensor", "cudnnConvolutionBackwardBias"}},
		{"nccl", "libnccl.so.2", []string{
			"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclAllToAll", "ncclSend", "ncclRecv",
			"ncclGroupEnd",
		}, []string{"ncclGroupStart", "ncclCommInitRank"}},
	} {
		t.Run(test.set, func(t *testing.T) {
			p := startPuppet(t)
			p.order("main library "+simtest.Build(t, "sim/testers/"+test.library), "main start w")
			baseline := p.truthSoFar().Counts()
			r := record(t, agent.Config{PID: p.PID, RegionSets: []string{test.set}})
			calls, times := map[string]uint64{"step | ": uint64(len(test.others))}, map[string]spanCount{}
			p.order("w begin step")
			for _, name := range test.regions {
				p.order("w call "+name+" 3", "w call "+name+" 0")
				calls["step | "+name], times["step | "+name] = 3, spanCount{2, 0}
			}
			for _, name := range test.others {
				p.order("w call " + name + " 1")
			}
			p.order("w end")
			got := r.interrupt()
			expectEqual(t, got, since(baseline, p.end().Counts()))
			expectNoLosses(t, got)
			expectRegions(t, got, calls, times)
			if n := len(partsByRegion(t, got, "step")); n != len(test.regions)+1 {
				t.Errorf("the stage is split into %d regions, want %d and the rest", n, len(test.regions))
			}
		})
	}
}
