// SPDX-License-Identifier: Apache-2.0
// Graphs: a list of work in the order in which it was added, which every dependency allows.
// Launching an executable graph submits its work to the stream.
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "context.h"
#include "function.h"
#include "lock.h"
#include "memory.h"
#include "stream.h"

// CU_GRAPH_NODE_TYPE_*
enum node_type { NODE_KERNEL = 0, NODE_MEMCPY = 1, NODE_MEMSET = 2, NODE_HOST = 3, NODE_EMPTY = 5 };

struct node {
    struct handle handle;
    struct graph *graph;
    struct node *next; // of the graph
    struct work work;
};

struct graph {
    struct handle handle;
    struct node *first, **end;
    size_t count;
};

struct graph_exec {
    struct handle handle;
    size_t count;
    struct work *work;
};

static struct handle_table graphs = HANDLE_TABLE(struct graph, 1 << 16);
static struct handle_table nodes = HANDLE_TABLE(struct node, 1 << 20);
static struct handle_table execs = HANDLE_TABLE(struct graph_exec, 1 << 16);

struct graph *graph_make(void) {
    struct graph *g = handle_make(&graphs);
    if (g)
        g->end = &g->first;
    return g;
}

CUresult graph_add(struct graph *g, const struct work *work, CUgraphNode *node) {
    struct node *n = handle_make(&nodes);
    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->graph = g;
    n->work = *work;
    sim_lock();
    *g->end = n;
    g->end = &n->next;
    g->count++;
    sim_unlock();
    if (node)
        *node = n;
    return CUDA_SUCCESS;
}

static CUresult graph_ready(CUgraph g) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_live(&graphs, g) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphCreate)(CUgraph *graph, unsigned flags) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = graph_make();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuGraphDestroy)(CUgraph g) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!handle_free(&graphs, g))
        return CUDA_ERROR_INVALID_VALUE;
    for (struct node *n = g->first, *next; n; n = next) {
        next = n->next;
        handle_free(&nodes, n);
    }
    return CUDA_SUCCESS;
}

// Nodes

static bool nodes_live(const CUgraphNode *list, size_t count) {
    if (count && !list)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!handle_live(&nodes, list[i]))
            return false;
    return true;
}

static CUresult add(CUgraphNode *node, CUgraph g, const CUgraphNode *dependencies, size_t count,
                    const struct work *work) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!node || !nodes_live(dependencies, count))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_add(g, work, node);
}

struct kernel_node_params {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
};

API(cuGraphAddKernelNode)
(CUgraphNode *node, CUgraph g, const CUgraphNode *dependencies, size_t count,
 const struct kernel_node_params *params) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!params || !function_live(params->function))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = kernel_work();
    return add(node, g, dependencies, count, &work);
}
ALIAS(cuGraphAddKernelNode_v2, cuGraphAddKernelNode);

struct memset_node_params {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, element_size;
    size_t width, height;
};

API(cuGraphAddMemsetNode)
(CUgraphNode *node, CUgraph g, const CUgraphNode *dependencies, size_t count,
 const struct memset_node_params *params, CUcontext context) {
    struct context *c;
    CUresult result = context_of(context, &c);
    if (result)
        return result;
    if (!params || !params->width || !params->height)
        return CUDA_ERROR_INVALID_VALUE;
    struct fill fill = {.to = (char *)params->to,
                        .pitch = params->pitch,
                        .width = params->width,
                        .height = params->height,
                        .value = params->value,
                        .size = params->element_size};
    if (!range_covers(params->to, (fill.height - 1) * fill.pitch + fill.width * fill.size))
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = fill_work(&fill);
    return add(node, g, dependencies, count, &work);
}

struct host_node_params {
    CUhostFn function;
    void *argument;
};

API(cuGraphAddHostNode)
(CUgraphNode *node, CUgraph g, const CUgraphNode *dependencies, size_t count,
 const struct host_node_params *params) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!params || !params->function)
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_HOST,
                        .host = {.function = params->function, .argument = params->argument}};
    return add(node, g, dependencies, count, &work);
}

API(cuGraphAddEmptyNode)
(CUgraphNode *node, CUgraph g, const CUgraphNode *dependencies, size_t count) {
    return add(node, g, dependencies, count, &(struct work){.kind = WORK_NOTHING});
}

// Order of addition already satisfies them.
API(cuGraphAddDependencies)
(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    return nodes_live(from, count) && nodes_live(to, count) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphGetNodes)(CUgraph g, CUgraphNode *list, size_t *count) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t i = 0;
    for (struct node *n = g->first; list && n && i < *count; n = n->next)
        list[i++] = n;
    *count = list ? i : g->count;
    return CUDA_SUCCESS;
}

static enum node_type type_of(enum work_kind kind) {
    switch (kind) {
    case WORK_KERNEL:
        return NODE_KERNEL;
    case WORK_COPY:
        return NODE_MEMCPY;
    case WORK_FILL:
        return NODE_MEMSET;
    case WORK_HOST:
    case WORK_CALLBACK:
        return NODE_HOST;
    default:
        return NODE_EMPTY;
    }
}

API(cuGraphNodeGetType)(CUgraphNode node, int *type) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!handle_live(&nodes, node) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = (int)type_of(node->work.kind);
    return CUDA_SUCCESS;
}

// Executable graphs

static CUresult instantiate(CUgraphExec *exec, CUgraph g) {
    CUresult result = graph_ready(g);
    if (result)
        return result;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_exec *x = handle_make(&execs);
    if (!x)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    x->work = calloc(g->count + 1, sizeof(*x->work));
    for (struct node *n = g->first; x->work && n; n = n->next)
        x->work[x->count++] = n->work;
    sim_unlock();
    *exec = x;
    return x->work ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuGraphInstantiate)
(CUgraphExec *exec, CUgraph g, CUgraphNode *bad UNUSED, char *log UNUSED, size_t size UNUSED) {
    return instantiate(exec, g);
}
ALIAS(cuGraphInstantiate_v2, cuGraphInstantiate);

API(cuGraphInstantiateWithFlags)(CUgraphExec *exec, CUgraph g, uint64_t flags UNUSED) {
    return instantiate(exec, g);
}

struct instantiate_params {
    uint64_t flags;
    CUstream upload_stream;
    CUgraphNode bad;
    int result;
};

API(cuGraphInstantiateWithParams)(CUgraphExec *exec, CUgraph g, struct instantiate_params *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = instantiate(exec, g);
    params->bad = NULL;
    params->result = result ? 1 : 0;
    return result;
}

static CUresult exec_ready(CUgraphExec x) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_live(&execs, x) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphExecDestroy)(CUgraphExec x) {
    CUresult result = exec_ready(x);
    if (result)
        return result;
    struct work *work = x->work;
    if (!handle_free(&execs, x))
        return CUDA_ERROR_INVALID_VALUE;
    free(work);
    return CUDA_SUCCESS;
}

API(cuGraphUpload)(CUgraphExec x, CUstream handle) {
    struct stream *s;
    CUresult result = exec_ready(x);
    return result ? result : stream_of(handle, &s);
}

API(cuGraphLaunch)(CUgraphExec x, CUstream handle) {
    struct stream *s;
    CUresult result = exec_ready(x);
    if (!result)
        result = stream_of(handle, &s);
    if (result)
        return result;
    spend_ns(config.launch_ns);
    for (size_t i = 0; i < x->count && !result; i++)
        result = stream_submit(s, &x->work[i]);
    return result;
}

// User objects: references that a graph keeps; the last release calls back.

struct user_object {
    struct handle handle;
    unsigned references;
    CUhostFn destroy;
    void *argument;
};

static struct handle_table user_objects = HANDLE_TABLE(struct user_object, 1 << 16);

API(cuUserObjectCreate)
(struct user_object **object, void *argument, CUhostFn destroy, unsigned references,
 unsigned flags UNUSED) {
    CUresult result = driver_ready();
    if (result)
        return result;
    if (!object || !destroy || !references)
        return CUDA_ERROR_INVALID_VALUE;
    struct user_object *o = handle_make(&user_objects);
    if (!o)
        return CUDA_ERROR_OUT_OF_MEMORY;
    o->references = references;
    o->destroy = destroy;
    o->argument = argument;
    *object = o;
    return CUDA_SUCCESS;
}

static CUresult object_ready(const struct user_object *o) {
    CUresult result = driver_ready();
    if (result)
        return result;
    return handle_live(&user_objects, o) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(struct user_object *o, unsigned count) {
    CUresult result = object_ready(o);
    if (result)
        return result;
    CUhostFn destroy = o->destroy;
    void *argument = o->argument;
    if (__atomic_sub_fetch(&o->references, count, __ATOMIC_ACQ_REL))
        return CUDA_SUCCESS;
    handle_free(&user_objects, o);
    destroy(argument);
    return CUDA_SUCCESS;
}

API(cuUserObjectRetain)(struct user_object *o, unsigned count) {
    CUresult result = object_ready(o);
    if (!result)
        __atomic_add_fetch(&o->references, count, __ATOMIC_RELAXED);
    return result;
}

API(cuUserObjectRelease)(struct user_object *o, unsigned count) {
    return release(o, count);
}

// CU_GRAPH_USER_OBJECT_MOVE hands the caller's references over; otherwise the graph gets its own.
enum { USER_OBJECT_MOVE = 1 };

API(cuGraphRetainUserObject)(CUgraph g, struct user_object *o, unsigned count, unsigned flags) {
    CUresult result = graph_ready(g);
    if (!result)
        result = object_ready(o);
    if (!result && !(flags & USER_OBJECT_MOVE))
        __atomic_add_fetch(&o->references, count, __ATOMIC_RELAXED);
    return result;
}

API(cuGraphReleaseUserObject)(CUgraph g, struct user_object *o, unsigned count) {
    CUresult result = graph_ready(g);
    return result ? result : release(o, count);
}
