# SPDX-License-Identifier: Apache-2.0
# build/sim/libnvidia-ml.so.1
nvml: $(OUT)/libnvidia-ml.so.1

$(OUT)/libnvidia-ml.so.1: nvml/nvml.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MF $(OBJ)/nvml.d -fvisibility=hidden -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $< -lpthread
