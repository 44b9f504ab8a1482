# Copyright (c) 2026 the ddrun authors
# SPDX-License-Identifier: MIT
"""Recipe for Spack 1.0 and later: packages/ddrun/package.py of a repository of the site's own."""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Ddrun(AutotoolsPackage):
    """Starts distributed training on the nodes of a cluster job: PyTorch, JAX, TensorFlow, Horovod and MPI programs."""

    # The source archive is taken from the current directory, or from a mirror.
    manual_download = True
    url = f"file://{os.getcwd()}/ddrun-0.1.0.tar.xz"

    license("MIT", checked_by="ddrun authors")

    version("0.1.0")

    variant("munge", default=True, description="Exchange the key of a job through MUNGE")
    variant("pmix", default=False, description="Start MPI programs through PMIx")
    variant("curl", default=True, description="Find nodes through etcd, and send events to web hooks")
    variant("zstd", default=True, description="Copy directories to the nodes (--stage)")
    variant("archive", default=True, description="Copy archives to the nodes, too", when="+zstd")
    variant("toml", default=True, description="Read files of settings (ddrun.toml)")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+toml")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("uthash", type="build")
    depends_on("libevent@2.1: +openssl")
    depends_on("jansson@2.11:")
    depends_on("openssl@1.1.1:")
    depends_on("tomlplusplus@3:", type="build", when="+toml")
    # Loaded at run time, from the directories that Spack writes into the programs.
    depends_on("munge@0.5.13:", when="+munge")
    depends_on("pmix@4.2:", when="+pmix")
    depends_on("curl@7.50: libs=shared", when="+curl")
    depends_on("zstd@1.4: libs=shared", when="+zstd")
    depends_on("libarchive@3:", when="+archive")

    def configure_args(self):
        return ["--disable-maintainer-mode", *self.with_or_without("munge"), *self.with_or_without("pmix"),
                *self.with_or_without("curl"), *self.with_or_without("zstd"), *self.with_or_without("toml")]

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.share.ddrun.python)
