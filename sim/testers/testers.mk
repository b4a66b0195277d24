# SPDX-License-Identifier: Apache-2.0
# build/sim/testers/NAME: one program per testers/NAME.c; tester.c is in all of them, streams.c and pythons.c in the puppet.
TESTER_SOURCES := $(filter-out testers/tester.c testers/streams.c testers/pythons.c,$(wildcard testers/*.c))
TESTERS := $(TESTER_SOURCES:testers/%.c=$(OUT)/testers/%)

testers: programs $(OUT)/testers/calls-static $(OUT)/testers/libcallers.so $(OUT)/testers/libnvtx.so $(OUT)/testers/libusdt.so \
		$(OUT)/testers/libfunctions.so $(OUT)/testers/libc10_cuda.so $(OUT)/testers/libcudnn.so.9 $(OUT)/testers/libnccl.so.2

programs: $(TESTERS)

$(OBJ)/testers/%.o: testers/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(OUT)/testers/%: $(OBJ)/testers/%.o $(OBJ)/testers/tester.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl -lpthread

$(OUT)/testers/puppet: $(OBJ)/testers/streams.o $(OBJ)/testers/pythons.o

# The driver linked into the executable: its functions are in .symtab only.
$(OBJ)/testers/static-%.o: testers/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -DSTATIC_DRIVER -c $< -o $@

$(OUT)/testers/calls-static: $(OBJ)/testers/static-calls.o $(OBJ)/testers/static-tester.o $(DRIVER_OBJECTS) \
		$(addprefix $(OBJ)/entries/real/,entries.o procs.o)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ldl -lpthread

$(OUT)/testers/libcallers.so: testers/libcallers/libcallers.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libcallers.d -shared -s -o $@ $<

$(OUT)/testers/libnvtx.so: testers/libnvtx/libnvtx.c testers/nvtx.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libnvtx.d -shared -o $@ $<

# Functions that are entered and left in every way. Compiled as C++ usually is, with its symbols kept.
$(OUT)/testers/libfunctions.so: testers/libfunctions/libfunctions.cpp
	@mkdir -p $(@D) $(OBJ)/testers
	$(CXX) $(CXXFLAGS) -MF $(OBJ)/testers/libfunctions.d -shared -o $@ $<

$(OUT)/testers/libusdt.so: testers/libusdt/libusdt.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libusdt.d -shared -o $@ $<

# Named as what they imitate.
$(OUT)/testers/libc10_cuda.so: testers/libc10_cuda/libc10_cuda.c
	@mkdir -p $(@D) $(OBJ)/testers
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libc10_cuda.d -shared -o $@ $<

$(OUT)/testers/libcudnn.so.9: testers/libcudnn/libcudnn.c testers/entry.h
	@mkdir -p $(@D) $(OBJ)/testers
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libcudnn.d -shared -o $@ $<

$(OUT)/testers/libnccl.so.2: testers/libnccl/libnccl.c testers/entry.h
	@mkdir -p $(@D) $(OBJ)/testers
	$(CC) $(CFLAGS) -MF $(OBJ)/testers/libnccl.d -shared -o $@ $<
