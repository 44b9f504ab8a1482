#!/bin/bash
#flux: -N4 -t 12h
# Four workers a node. flux batch contrib/jobs/flux.sh, after you have inserted your program
exec ddrun --launcher=flux --hosts="$(flux hostlist local)" --nproc-per-node=4 train.py
