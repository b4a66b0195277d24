package target

import "testing"

func TestRank(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		want Rank
	}{
		{"none", nil, Rank{-1, -1, -1}},
		{"torchrun", map[string]string{"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, Rank{5, 1, 8}},
		{"rank zero", map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, Rank{0, 0, 1}},
		{"rank alone", map[string]string{"RANK": "5"}, Rank{5, -1, -1}},
		{"Open MPI", map[string]string{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, Rank{2, 0, 4}},
		{"MPICH", map[string]string{"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "4"}, Rank{3, 1, 4}},
		{"Slurm", map[string]string{"SLURM_PROCID": "7", "SLURM_LOCALID": "3", "SLURM_NTASKS": "16"}, Rank{7, 3, 16}},
		{"torchrun inside Slurm", map[string]string{"RANK": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}, Rank{1, -1, -1}},
		{"rubbish", map[string]string{"RANK": "x", "PMI_RANK": "-1"}, Rank{-1, -1, -1}},
		{"too large", map[string]string{"RANK": "99999999999"}, Rank{-1, -1, -1}},
		{"empty", map[string]string{"RANK": ""}, Rank{-1, -1, -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := (&Process{environ: tc.env}).Rank(); got != tc.want {
				t.Errorf("Rank() = %+v, want %+v", got, tc.want)
			}
		})
	}
}
