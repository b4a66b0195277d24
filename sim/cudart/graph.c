// SPDX-License-Identifier: Apache-2.0
//
// Graphs and the objects whose lifetime they extend.
#include "runtime.h"

RUNTIME_API rt_error cudaGraphDestroy(handle graph) {
    return ON_DEVICE(driver.cuGraphDestroy(graph));
}

RUNTIME_API rt_error cudaGraphExecDestroy(handle executable) {
    return ON_DEVICE(driver.cuGraphExecDestroy(executable));
}

RUNTIME_API rt_error cudaGraphGetNodes(handle graph, handle *nodes, size_t *count) {
    return ON_DEVICE(driver.cuGraphGetNodes(graph, nodes, count));
}

RUNTIME_API rt_error cudaGraphInstantiate(handle *executable, handle graph,
                                          unsigned long long flags) {
    return ON_DEVICE(driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

RUNTIME_API rt_error cudaGraphInstantiateWithFlags(handle *executable, handle graph,
                                                   unsigned long long flags) {
    return ON_DEVICE(driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}

RUNTIME_API rt_error cudaGraphLaunch(handle executable, handle stream) {
    return ON_DEVICE(driver.cuGraphLaunch(executable, stream));
}

RUNTIME_API rt_error cudaGraphDebugDotPrint(handle graph, const char *path, unsigned flags) {
    return ON_DEVICE(driver.cuGraphDebugDotPrint(graph, path, flags));
}

RUNTIME_API rt_error cudaGraphRetainUserObject(handle graph, handle object, unsigned count,
                                               unsigned flags) {
    return ON_DEVICE(driver.cuGraphRetainUserObject(graph, object, count, flags));
}

RUNTIME_API rt_error cudaUserObjectCreate(handle *object, void *pointer, void (*destroy)(void *),
                                          unsigned references, unsigned flags) {
    return ON_DEVICE(driver.cuUserObjectCreate(object, pointer, destroy, references, flags));
}

RUNTIME_API rt_error cudaUserObjectRelease(handle object, unsigned count) {
    return ON_DEVICE(driver.cuUserObjectRelease(object, count));
}
