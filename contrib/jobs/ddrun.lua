-- Environment module of an installation below PREFIX: copy it to MODULEPATH/ddrun/VERSION.lua and set prefix.
local prefix = "/opt/ddrun"
help("ddrun starts distributed training on a Slurm or PBS allocation: ddrun --help, man ddrun")
whatis("Launcher and rendezvous for PyTorch, JAX, TensorFlow, Horovod and MPI programs")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PYTHONPATH", pathJoin(prefix, "share/ddrun/python"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
append_path("MANPATH", "") -- the system's pages stay, where MANPATH was not set
