#%Module1.0
# Environment module (Environment Modules, or Lmod) of an installation below PREFIX: copy it to MODULEPATH/ddrun/VERSION and
# set prefix.
set prefix /opt/ddrun
proc ModulesHelp {} {
    puts stderr "ddrun starts distributed training on a Slurm or PBS allocation: ddrun --help, man ddrun"
}
module-whatis "Launcher and rendezvous for PyTorch, JAX, TensorFlow, Horovod and MPI programs"
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
prepend-path LD_LIBRARY_PATH $prefix/lib
prepend-path PYTHONPATH $prefix/share/ddrun/python
prepend-path PKG_CONFIG_PATH $prefix/lib/pkgconfig
append-path MANPATH {} ;# the system's pages stay, where MANPATH was not set
