// SPDX-License-Identifier: Apache-2.0
// libcudnn.so.9: functions with the names of cuDNN's public entry points. The last ones are not
// among those that are regions.
#include "../entry.h"

ENTRY(cudnnBackendExecute)
ENTRY(cudnnConvolutionForward)
ENTRY(cudnnConvolutionBiasActivationForward)
ENTRY(cudnnConvolutionBackwardData)
ENTRY(cudnnConvolutionBackwardFilter)
ENTRY(cudnnRNNForward)
ENTRY(cudnnRNNBackwardData_v8)
ENTRY(cudnnRNNBackwardWeights_v8)
ENTRY(cudnnMultiHeadAttnForward)
ENTRY(cudnnCTCLoss)
ENTRY(cudnnCTCLoss_v8)

ENTRY(cudnnBackendFinalize)
ENTRY(cudnnAddTensor)
ENTRY(cudnnConvolutionBackwardBias)
