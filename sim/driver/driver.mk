# SPDX-License-Identifier: Apache-2.0
# build/sim/libcuda.so.1, and build/sim/variants/NAME/: drivers with other exports or other first instructions.
DRIVER_SOURCES := $(wildcard driver/*.c)
DRIVER_OBJECTS := $(DRIVER_SOURCES:driver/%.c=$(OBJ)/driver/%.o) $(OBJ)/driver/dispatch.o
DRIVER_TABLES := driver/gen.py driver/exports.txt driver/procs.txt

driver: $(OUT)/libcuda.so.1 $(OUT)/libcuda.so

# What a linker, and Triton, look for.
$(OUT)/libcuda.so: $(OUT)/libcuda.so.1
	ln -sf libcuda.so.1 $@

$(OBJ)/driver/%.o: driver/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fvisibility=hidden -c $< -o $@

$(OBJ)/driver/dispatch.o: driver/dispatch_$(MACHINE).S
	@mkdir -p $(@D)
	$(CC) -c $< -o $@

# entry_tables,NAME,OPTIONS: what gen.py writes for one set of exports and shape of entries.
define entry_tables
$(OBJ)/entries/$(1)/exports.map: $(DRIVER_TABLES)
	$(PYTHON) driver/gen.py $$(@D) --machine $(MACHINE) $(2)

$(OBJ)/entries/$(1)/entries.o: $(OBJ)/entries/$(1)/exports.map
	$(CC) -c $$(@D)/entries.S -o $$@

$(OBJ)/entries/$(1)/procs.o: $(OBJ)/entries/$(1)/exports.map
	$(CC) $(CFLAGS) -fvisibility=hidden -Idriver -c $$(@D)/procs.c -o $$@
endef

# link,SONAME: one library from the objects and the version script among the prerequisites. The driver stays
# mapped when it is closed, as its truth is written at exit.
link = $(CC) $(LDFLAGS) -shared -Wl,-soname,$(1) -Wl,--version-script=$(filter %.map,$^) -Wl,-z,now -Wl,-z,nodelete \
	-Wl,--build-id -o $@ $(filter %.o,$^) -lpthread

$(eval $(call entry_tables,real,))

$(OUT)/libcuda.so.1: $(DRIVER_OBJECTS) $(addprefix $(OBJ)/entries/real/,entries.o procs.o exports.map)
	$(call link,libcuda.so.1)
