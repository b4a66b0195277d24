# SPDX-License-Identifier: Apache-2.0
"""The C extension; everything else is in pyproject.toml."""

import platform
import sysconfig

from setuptools import Extension, setup

compile_args = ["-std=gnu11", "-O2", "-fvisibility=hidden", "-fno-lto"]
if platform.machine() == "x86_64":
    compile_args.append("-mno-red-zone")  # see Makefile

native = Extension(
    "stageprof._native",
    sources=[
        "python/stageprof/_native.c",
        "c/mark.c",
        "c/names.c",
        "c/threads.c",
        "c/stages.c",
        "c/publish.c",
    ],
    depends=["c/stageprof.h", "c/internal.h"],
    include_dirs=["c"],
    extra_compile_args=compile_args,
    # The soname makes programs that need libstageprof.so.1 use this copy.
    extra_link_args=[
        "-Wl,-soname,libstageprof.so.1",
        "-Wl,-Bsymbolic",
        "-Wl,-z,nodelete",
        "-pthread",
        "-ldl",
    ],
    optional=True,  # without it the package works in Python, and says so
)

# The extension relies on the GIL. On an interpreter without one, importing it
# would switch the GIL on for the whole program.
free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

setup(ext_modules=[] if free_threaded else [native])
