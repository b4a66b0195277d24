// SPDX-License-Identifier: Apache-2.0
//
// Not part of the library: compiled by `make check-abi` against NVIDIA's public headers, it fails
// where one of our layouts or values differs from theirs.
#include <cuda.h>
#include <cuda_runtime_api.h>

// Ours has the same name for a type of the same layout.
#define dim3 our_dim3
#include "types.h"
#undef dim3

_Static_assert(CUDART_VERSION / 1000 == SIM_MAJOR, "headers of another major version");

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field)                                           \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                   \
                       sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),       \
                   #their_field)

SAME_SIZE(rt_error, cudaError_t);
SAME_SIZE(handle, cudaStream_t);
SAME_SIZE(our_dim3, struct dim3);
SAME_SIZE(ipc_handle, cudaIpcMemHandle_t);
SAME_SIZE(ipc_handle, cudaIpcEventHandle_t);

SAME_SIZE(struct pointer_attributes, struct cudaPointerAttributes);
SAME_FIELD(struct pointer_attributes, type, struct cudaPointerAttributes, type);
SAME_FIELD(struct pointer_attributes, device, struct cudaPointerAttributes, device);
SAME_FIELD(struct pointer_attributes, device_pointer, struct cudaPointerAttributes, devicePointer);
SAME_FIELD(struct pointer_attributes, host_pointer, struct cudaPointerAttributes, hostPointer);

SAME_SIZE(struct function_attributes, struct cudaFuncAttributes);
SAME_FIELD(struct function_attributes, local_bytes, struct cudaFuncAttributes, localSizeBytes);
SAME_FIELD(struct function_attributes, registers, struct cudaFuncAttributes, numRegs);
SAME_FIELD(struct function_attributes, max_dynamic_shared_bytes, struct cudaFuncAttributes,
           maxDynamicSharedSizeBytes);
SAME_FIELD(struct function_attributes, preferred_shared_carveout, struct cudaFuncAttributes,
           preferredShmemCarveout);
SAME_FIELD(struct function_attributes, non_portable_cluster_allowed, struct cudaFuncAttributes,
           nonPortableClusterSizeAllowed);

SAME_SIZE(struct launch_config, cudaLaunchConfig_t);
SAME_FIELD(struct launch_config, shared_bytes, cudaLaunchConfig_t, dynamicSmemBytes);
SAME_FIELD(struct launch_config, stream, cudaLaunchConfig_t, stream);
SAME_FIELD(struct launch_config, attributes, cudaLaunchConfig_t, attrs);
SAME_FIELD(struct launch_config, attribute_count, cudaLaunchConfig_t, numAttrs);

SAME_SIZE(struct driver_launch_config, CUlaunchConfig);
SAME_FIELD(struct driver_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(struct driver_launch_config, stream, CUlaunchConfig, hStream);
SAME_FIELD(struct driver_launch_config, attributes, CUlaunchConfig, attrs);

SAME_SIZE(struct driver_copy2d, CUDA_MEMCPY2D);
SAME_FIELD(struct driver_copy2d, source.type, CUDA_MEMCPY2D, srcMemoryType);
SAME_FIELD(struct driver_copy2d, source.pitch, CUDA_MEMCPY2D, srcPitch);
SAME_FIELD(struct driver_copy2d, destination.type, CUDA_MEMCPY2D, dstMemoryType);
SAME_FIELD(struct driver_copy2d, destination.device, CUDA_MEMCPY2D, dstDevice);
SAME_FIELD(struct driver_copy2d, destination.pitch, CUDA_MEMCPY2D, dstPitch);
SAME_FIELD(struct driver_copy2d, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_FIELD(struct driver_copy2d, height, CUDA_MEMCPY2D, Height);

_Static_assert(DEVICE_PROP_SIZE == sizeof(struct cudaDeviceProp), "cudaDeviceProp");
_Static_assert(DEVICE_UUID_OFFSET == offsetof(struct cudaDeviceProp, uuid), "uuid");
_Static_assert(DEVICE_TOTAL_MEMORY_OFFSET == offsetof(struct cudaDeviceProp, totalGlobalMem),
               "totalGlobalMem");
enum { NO_FIELD = -1 };
#if SIM_MAJOR >= 13
#define THEIR_OFFSET(offset_12, offset_13) offset_13
// The fields that CUDA 13 dropped; the names are only looked at to be skipped.
#define clockRate name
#define memoryClockRate name
#define singleToDoublePrecisionPerfRatio name
#else
#define THEIR_OFFSET(offset_12, offset_13) offset_12
#endif
#define DEVICE_PROP(field, offset_12, offset_13, bytes, attribute)                                 \
    _Static_assert(                                                                                \
        THEIR_OFFSET(offset_12, offset_13) == NO_FIELD ||                                          \
            (THEIR_OFFSET(offset_12, offset_13) == offsetof(struct cudaDeviceProp, field) &&       \
             bytes == sizeof(((struct cudaDeviceProp *)0)->field)),                                \
        #field);
#include "device_props.inc"

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(RT_INVALID_SYMBOL, cudaErrorInvalidSymbol);
SAME_VALUE(RT_INSUFFICIENT_DRIVER, cudaErrorInsufficientDriver);
SAME_VALUE(RT_CALL_REQUIRES_NEWER_DRIVER, cudaErrorCallRequiresNewerDriver);
SAME_VALUE(RT_MISSING_CONFIGURATION, cudaErrorMissingConfiguration);
SAME_VALUE(RT_INVALID_DEVICE_FUNCTION, cudaErrorInvalidDeviceFunction);
SAME_VALUE(RT_NO_DEVICE, cudaErrorNoDevice);
SAME_VALUE(RT_INVALID_DEVICE, cudaErrorInvalidDevice);
SAME_VALUE(RT_SYMBOL_NOT_FOUND, cudaErrorSymbolNotFound);
SAME_VALUE(RT_NOT_SUPPORTED, cudaErrorNotSupported);
SAME_VALUE(COPY_HOST_TO_DEVICE, cudaMemcpyHostToDevice);
SAME_VALUE(COPY_BY_ADDRESS, cudaMemcpyDefault);
SAME_VALUE(MEMORY_MANAGED, cudaMemoryTypeManaged);

#define ERROR_TEXT(value, name, text) SAME_VALUE(value, name);
#include "errors.inc"
