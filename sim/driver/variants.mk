# SPDX-License-Identifier: Apache-2.0
# Drivers that differ from build/sim/libcuda.so.1 (README.md, "Variants"): build/sim/variants/NAME/libcuda.so.1.
VARIANT_plain := --keep plain
VARIANT_ex-ptsz := --keep ex-ptsz
VARIANT_versioned := --keep versioned
VARIANT_push-rbp := --entry push-rbp
VARIANT_endbr64-push := --entry endbr64-push
VARIANT_push-rbx := --entry push-rbx
VARIANT_nop5 := --entry nop5

GENERATED_VARIANTS := plain ex-ptsz versioned push-rbp endbr64-push push-rbx nop5
VARIANTS := $(OUT)/variants

variants: $(GENERATED_VARIANTS:%=$(VARIANTS)/%/libcuda.so.1) $(VARIANTS)/stripped/libcuda.so.1 \
	$(VARIANTS)/vendor/libvendor.so $(VARIANTS)/decoy/libcuda.so.1

# variant,NAME: a driver whose entries gen.py wrote with VARIANT_NAME.
define variant
$(call entry_tables,$(1),$(VARIANT_$(1)))

$(VARIANTS)/$(1)/libcuda.so.1: $(DRIVER_OBJECTS) $(addprefix $(OBJ)/entries/$(1)/,entries.o procs.o exports.map)
	@mkdir -p $$(@D)
	$$(call link,libcuda.so.1)
endef
$(foreach name,$(GENERATED_VARIANTS),$(eval $(call variant,$(name))))

$(VARIANTS)/stripped/libcuda.so.1: $(OUT)/libcuda.so.1
	@mkdir -p $(@D)
	strip --strip-all -o $@ $<

# A second copy, for a path that nobody opens.
$(VARIANTS)/decoy/libcuda.so.1: $(OUT)/libcuda.so.1
	@mkdir -p $(@D)
	cp $< $@

# The driver inside another library.
$(VARIANTS)/vendor/libvendor.so: $(DRIVER_OBJECTS) $(addprefix $(OBJ)/entries/real/,entries.o procs.o exports.map)
	@mkdir -p $(@D)
	$(call link,libvendor.so)
