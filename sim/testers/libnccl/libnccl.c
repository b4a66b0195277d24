// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2: functions with the names of NCCL's public entry points. The last ones are not among
// those that are regions.
#include "../entry.h"

ENTRY(ncclAllReduce)
ENTRY(ncclAllGather)
ENTRY(ncclReduceScatter)
ENTRY(ncclBroadcast)
ENTRY(ncclReduce)
ENTRY(ncclAllToAll)
ENTRY(ncclSend)
ENTRY(ncclRecv)
ENTRY(ncclGroupEnd)

ENTRY(ncclGroupStart)
ENTRY(ncclCommInitRank)
