package target

import "strconv"

// Rank is the target's place in a distributed job, from the environment that it was started
// with. What is unknown is -1.
type Rank struct {
	Rank      int
	LocalRank int
	WorldSize int
}

// The variables of each launcher, in order of preference: torchrun's, which training code also
// sets itself, then what MPI implementations and Slurm provide.
var rankVariables = []struct{ rank, localRank, worldSize string }{
	{"RANK", "LOCAL_RANK", "WORLD_SIZE"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
	{"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
	{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
}

// Rank returns the target's place in a distributed job. All three numbers come from the first
// launcher whose rank variable is set, so they never mix.
func (p *Process) Rank() Rank {
	for _, v := range rankVariables {
		if r := p.number(v.rank); r >= 0 {
			return Rank{r, p.number(v.localRank), p.number(v.worldSize)}
		}
	}
	return Rank{-1, -1, -1}
}

// number returns the variable's value, -1 if it is not a number from 0 on.
func (p *Process) number(name string) int {
	n, err := strconv.ParseInt(p.Env(name), 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return int(n)
}
